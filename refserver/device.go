package refserver

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// DeviceRecord is what registration stored.
type DeviceRecord struct {
	Identity      string            // who enrolled it
	PublicKey     ed25519.PublicKey // 32 bytes
	OS, Arch      string
	Name          string
	WorkspaceRoot string
}

// device is one enrolled device: its row, its lease, and its work.
type device struct {
	ID string
	DeviceRecord
	revoked bool
	issued  bool   // gen was handed out at least once
	gen     uint64 // the last generation

	leaseEpoch string // "": nobody holds it
	leaseUntil time.Time

	// Memory.
	current  *socket // the connection that holds the lease
	epoch    string  // of the process that has the work in flight
	lastBye  wire.GoodbyeReason
	connects int
	supports []string // of the latest hello
	beat     *wire.Heartbeat
	queue    []*Call // waiting for a slot
	inflight []*Call // committed and unsettled, in order of commit
	grace    *timer  // runs while there is no connection and work is in flight
}

// AddDevice registers a device without HTTP and returns its id.
func (s *Server) AddDevice(r DeviceRecord) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addDevice(r).ID
}

func (s *Server) addDevice(r DeviceRecord) *device {
	d := &device{ID: s.mintID("dev_"), DeviceRecord: r}
	s.devices[d.ID] = d
	return d
}

// nextGen opens the device's next generation.
func (d *device) nextGen(first uint64) wire.Gen {
	if d.issued {
		d.gen++
	} else {
		d.issued, d.gen = true, first
	}
	return wire.Gen(strconv.FormatUint(d.gen, 10))
}

// active reports whether instructions may be written to the device now.
func (d *device) active() bool {
	return d.current != nil && d.current.acked && !d.current.closing
}

// pump commits queued work while there are slots.
func (s *Server) pump(d *device) {
	for len(d.queue) > 0 && len(d.inflight) < s.cfg.MaxInflight && d.active() {
		c := d.queue[0]
		d.queue = d.queue[1:]
		s.commit(c)
	}
}

// DeviceState is a moment in a device's life, for tests and reports.
type DeviceState struct {
	Registered    bool
	Revoked       bool
	Connected     bool // the handshake is complete
	Active        bool // generationAck came: instructions may be dispatched
	Gen           wire.Gen
	Epoch         string
	Connections   int // completed handshakes so far
	Supports      []string
	Goodbye       wire.GoodbyeReason // said on the present or the last connection
	LastHeartbeat *wire.Heartbeat    // on the present connection
	Queued        []string
	Inflight      []string
}

// State describes a device now.
func (s *Server) State(deviceID string) DeviceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state(deviceID)
}

func (s *Server) state(deviceID string) DeviceState {
	d := s.devices[deviceID]
	if d == nil {
		return DeviceState{}
	}
	st := DeviceState{Registered: true, Revoked: d.revoked, Connections: d.connects, Goodbye: d.lastBye,
		Supports: slices.Clone(d.supports), LastHeartbeat: d.beat, Active: d.active(),
		Queued: idsOf(d.queue), Inflight: idsOf(d.inflight)}
	if d.current != nil {
		st.Connected, st.Gen, st.Epoch = true, d.current.gen, d.current.epoch
	}
	return st
}

func idsOf(calls []*Call) []string {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = c.id
	}
	return ids
}

// WaitFor waits until holds says so of the device's state. Errors: [ErrClosed], and that
// of ctx.
func (s *Server) WaitFor(ctx context.Context, deviceID string, holds func(DeviceState) bool) error {
	var st DeviceState
	err := s.WaitUntil(ctx, func() bool {
		st = s.State(deviceID)
		return holds(st)
	})
	if err != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("waiting for device %s (connected %t, active %t): %w", deviceID, st.Connected, st.Active, err)
	}
	return err
}

// WaitUntil waits until holds says so. It is asked at once, and again after each change
// of any device's state or of the record of violations. Errors: [ErrClosed], after it was
// asked once more, and that of ctx.
func (s *Server) WaitUntil(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		changed, closed := s.changed, s.closed
		s.mu.Unlock()
		if holds() {
			return nil
		}
		if closed {
			return ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitActive waits until instructions may be dispatched to the device.
func (s *Server) WaitActive(ctx context.Context, deviceID string) error {
	return s.WaitFor(ctx, deviceID, func(st DeviceState) bool { return st.Active })
}

// Devices lists the ids of all registered devices, sorted.
func (s *Server) Devices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.devices))
	for id := range s.devices {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
