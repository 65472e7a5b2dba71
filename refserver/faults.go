package refserver

import (
	"slices"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Faults makes a server misbehave to order. The zero value is a good server.
type Faults struct {
	NoChallenge   bool                 // say nothing on open
	NoHelloAnswer bool                 // never answer a hello; the deadline closes
	HelloDelay    time.Duration        // answer a hello this late
	RejectHello   wire.HelloRejectCode // answer every hello with this code

	// Outgoing, if set, decides over each frame about to be written; the
	// connection's writer calls it. Incoming decides over each frame that
	// parsed, before it is admitted; the connection's reader calls it, and
	// heeds Delay, Cut and Drop.
	Outgoing func(deviceID string, f wire.ServerFrame) Action
	Incoming func(deviceID string, f wire.DeviceFrame) Action
}

// Action is a fault on one frame. Delay comes first and holds up what follows
// on the same connection and direction.
type Action struct {
	Delay   time.Duration
	Drop    bool
	Replace []byte // outgoing: this text message in the frame's place
	Repeat  int    // further copies of the same bytes
	Cut     bool   // drop the connection afterwards, without a closing handshake
}

// SetFaults orders faults, in place of all former ones, from now on and also
// for the connections that are open.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Withhold is an Outgoing that never lets frames of these types out.
func Withhold(types ...wire.ServerFrameType) func(string, wire.ServerFrame) Action {
	return func(_ string, f wire.ServerFrame) Action {
		return Action{Drop: slices.Contains(types, f.ServerType())}
	}
}

// Duplicate is an Outgoing that sends frames of these types twice.
func Duplicate(types ...wire.ServerFrameType) func(string, wire.ServerFrame) Action {
	return func(_ string, f wire.ServerFrame) Action {
		if slices.Contains(types, f.ServerType()) {
			return Action{Repeat: 1}
		}
		return Action{}
	}
}

// Inject queues one text message, as it is, on the device's connection; false
// if there is none. The server's own books do not know of it.
func (s *Server) Inject(deviceID string, raw []byte) bool { return s.inject(deviceID, raw, false) }

// InjectBinary is Inject with a binary message.
func (s *Server) InjectBinary(deviceID string, raw []byte) bool { return s.inject(deviceID, raw, true) }

func (s *Server) inject(deviceID string, raw []byte, binary bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[deviceID]
	if d == nil || d.current == nil || d.current.closing {
		return false
	}
	d.current.out = append(d.current.out, outgoing{raw: slices.Clone(raw), binary: binary})
	d.current.poke()
	return true
}

// Drop cuts the device's connection without a closing handshake; false if
// there is none.
func (s *Server) Drop(deviceID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[deviceID]
	if d == nil || d.current == nil {
		return false
	}
	d.current.cancel()
	return true
}

// CutAfter cuts the device's connection once n more bytes, of both directions
// together, have gone over it: also in the middle of a frame. False if there
// is no connection, or it did not come through Serve.
func (s *Server) CutAfter(deviceID string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[deviceID]
	if d == nil || d.current == nil || d.current.cut == nil {
		return false
	}
	d.current.cut.arm(n)
	return true
}
