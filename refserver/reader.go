package refserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// readLoop is the connection's reader; it returns when the connection is over.
func (k *socket) readLoop() {
	buf := make([]byte, 0, 4096)
	for {
		typ, r, err := k.ws.Reader(k.ctx)
		if err != nil {
			return
		}
		buf, err = readMessage(buf[:0], r)
		if errors.Is(err, websocket.ErrMessageTooBig) {
			k.s.mu.Lock()
			k.note(Violation{Reason: Oversize, Refused: true, Size: len(buf), Detail: "the transport closed with 1009"})
			k.s.mu.Unlock()
			k.cancel()
			return
		}
		if err != nil || k.cutOff(buf) {
			return
		}
		if !k.receive(typ == websocket.MessageBinary, buf) {
			// The writer closes; what still arrives is void, but must be
			// read for the closing handshake to come through.
			k.drain()
			return
		}
	}
}

// cutOff reports whether a message is the beginning of one whose connection ended
// in the middle: the library calls it complete if the end came between two of its
// reads. What is no JSON for that reason is nobody's fault.
func (k *socket) cutOff(raw []byte) bool {
	return k.cut != nil && k.cut.ended.Load() && !json.Valid(raw)
}

// drain reads until the connection is over.
func (k *socket) drain() {
	for {
		_, r, err := k.ws.Reader(k.ctx)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
	}
}

// readMessage appends the whole message to buf, in few large reads.
func readMessage(buf []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(4096, cap(buf)))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// receive takes one message. False: the connection is to end.
func (k *socket) receive(binary bool, raw []byte) bool {
	s := k.s
	s.mu.Lock()
	limit := wire.MaxFrameBytes
	if k.phase == awaitingHello || k.phase == answeringHello {
		limit = wire.MaxPreAuthFrameBytes
	}
	k.heard = time.Now()
	incoming := s.faults.Incoming
	deviceID := k.deviceID()
	s.mu.Unlock()

	f, reason, detail := parse(binary, raw, limit)
	if s.cfg.Trace != nil {
		m := Frame{Size: len(raw), Seq: -1, Refused: reason}
		if f != nil {
			m = frameOfDevice(f, len(raw))
		}
		m.Conn, m.Binary = k.n, binary
		if m.DeviceID == "" {
			m.DeviceID = deviceID
		}
		s.cfg.Trace(FromDevice, m, raw)
	}
	if f != nil && incoming != nil {
		a := incoming(deviceID, f)
		if !k.pause(a.Delay) {
			return false
		}
		if a.Cut {
			k.cancel()
			return false
		}
		if a.Drop {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == nil {
		return k.malformed(reason, detail, len(raw))
	}
	return k.admit(f, len(raw))
}

// parse is stage 1 of §2.4.
func parse(binary bool, raw []byte, limit int) (f wire.DeviceFrame, refused Reason, detail string) {
	switch {
	case len(raw) > limit:
		return nil, FrameTooLarge, fmt.Sprintf("above %d bytes", limit)
	case binary:
		return nil, NotJSON, "a binary message"
	}
	f, err := wire.DecodeDevice(raw, limit)
	if err == nil {
		return f, "", ""
	}
	var reject *wire.RejectError
	if errors.As(err, &reject) {
		return nil, Reason(reject.Reason), reject.Detail
	}
	return nil, BadShape, "undecodable"
}

// malformed records a message that did not parse; before the handshake it
// costs the connection.
func (k *socket) malformed(reason Reason, detail string, size int) bool {
	k.note(Violation{Reason: reason, Refused: true, Size: size, Detail: detail})
	if k.phase == established {
		k.renew()
		return true
	}
	k.close(websocket.StatusPolicyViolation)
	return false
}
