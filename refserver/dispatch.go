package refserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// ErrUnknownDevice reports a device id that was never registered.
var ErrUnknownDevice = errors.New("reference server: no such device")

// Dispatch is one instruction to be given to a device.
type Dispatch struct {
	Kind wire.Kind
	// Args is sent as its kind's members. WriteArgs without a SHA256 get it and
	// ContentLen from Content; with one, both are sent as they are.
	Args     wire.Args
	RawArgs  json.RawMessage // if set, in place of Args: for malformed ones
	Cwd      string          // "": absent
	ShellEnv map[string]string
	// TimeoutMs is sent as it is, also below zero; 0: one minute.
	TimeoutMs int64
	Content   []byte // what a write writes; not copied, leave it alone until the call is done

	// RootSessionID is "" for a fixed one.
	RootSessionID string
	// Deliver takes each stdout, stderr and data chunk in order, one call at a
	// time, until the call is done; data is its own. An error cancels the
	// command. Nil: output is counted and dropped.
	Deliver func(kind wire.ChunkKind, data []byte) error
	// AckDelivered acknowledges a chunk only once Deliver returned, so a slow
	// consumer slows the command. Without it, a chunk is acknowledged as it
	// arrives, and a consumer that falls behind Config.PendingBytes or
	// PendingEntries costs the command its life (§4).
	AckDelivered bool
	// Straggler sends it though the device has said goodbye (§1.6), and even
	// if the kind is one the device did not declare.
	Straggler bool
}

// Dispatch queues an instruction. It is sent when the device is active and has
// a slot free; ctx does not bound it, see Call.Cancel. An error means that no
// Call exists.
func (s *Server) Dispatch(ctx context.Context, deviceID string, what Dispatch) (*Call, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dispatch to %s: %w", deviceID, err)
	}
	digest := digestHex(what.Content)
	args, err := what.encodeArgs(digest)
	if err != nil {
		return nil, fmt.Errorf("dispatch to %s: args of %s: %w", deviceID, what.Kind, err)
	}
	if what.TimeoutMs == 0 {
		what.TimeoutMs = time.Minute.Milliseconds()
	}
	if what.RootSessionID == "" {
		what.RootSessionID = "ses_refserver"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	d := s.devices[deviceID]
	if d == nil {
		return nil, fmt.Errorf("%w: %s", ErrUnknownDevice, deviceID)
	}
	c := newCall(s, d, what, args, digest)
	if _, err := wire.AppendServer(nil, c.instruction("18446744073709551615", wire.MaxSafeInteger)); err != nil {
		return nil, fmt.Errorf("dispatch to %s: %w", deviceID, err)
	}
	s.calls[c.id] = c
	switch {
	case d.current == nil || d.current.closing:
		s.neverStarted(c, wire.Failf(wire.CodeTargetUnavailable, "device %s is not connected", d.ID))
	case d.current.goodbye && !what.Straggler:
		s.neverStarted(c, wire.Failf(wire.CodeTargetUnavailable, "device %s has said goodbye", d.ID))
	case !d.declares(what.Kind) && !what.Straggler:
		s.notDeclared(c)
	default:
		d.queue = append(d.queue, c)
		s.pump(d)
	}
	return c, nil
}

// declares reports whether the device's supports, less what no server knows,
// holds kind (§3.2).
func (d *device) declares(kind wire.Kind) bool {
	if !kind.Known() {
		return false
	}
	for _, k := range d.supports {
		if wire.Kind(k) == kind {
			return true
		}
	}
	return false
}

func (w *Dispatch) encodeArgs(digest string) (json.RawMessage, error) {
	if w.RawArgs != nil {
		return w.RawArgs, nil
	}
	a := w.Args
	if wa, ok := a.(wire.WriteArgs); ok {
		if wa.SHA256 == "" {
			wa.ContentLen, wa.SHA256 = int64(len(w.Content)), digest
		}
		a = wa
	}
	return wire.AppendArgs(nil, a)
}

func digestHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// commit crosses the one-way line: from here on the device may have seen the
// instruction, and it is never sent again (§5.0, R1).
func (s *Server) commit(c *Call) {
	d, k := c.device, c.device.current
	c.state = wire.StateDispatchCommitted
	c.committed = time.Now()
	d.inflight = append(d.inflight, c)
	c.conn = k.n
	k.issued++
	c.ceiling = s.after(millis(c.what.TimeoutMs)+s.cfg.ExecutionGrace, func() {
		s.record(Violation{Reason: TimeoutUnanswered, Refused: true, Excused: d.current == nil, DeviceID: d.ID, InstructionID: c.id,
			Detail: "no result within timeoutMs and the grace"})
		s.writeOff(c, ByCeiling, "the device gave no answer within the timeout and the grace on top of it")
	})
	if c.what.Deliver != nil {
		s.wg.Add(1)
		go c.deliverLoop()
	}
	k.send(c.instruction(k.gen, k.issued))
	if c.what.Kind.TakesPayload() {
		k.payloads = append(k.payloads, &payloadRun{call: c})
	}
}

func (c *Call) instruction(gen wire.Gen, issued int64) *wire.Instruction {
	return &wire.Instruction{Gen: gen, InstructionID: c.id, RootSessionID: c.what.RootSessionID, IssuedSeq: issued,
		Kind: c.what.Kind, Args: c.args, Cwd: c.what.Cwd, ShellEnv: c.what.ShellEnv, TimeoutMs: c.what.TimeoutMs}
}

// stragglers spares, from failQueued, what is to be sent after a goodbye.
func stragglers(c *Call) bool { return c.what.Straggler }

// notDeclared rejects a kind that the device's present connection lacks.
func (s *Server) notDeclared(c *Call) {
	s.neverStarted(c, wire.Failf(wire.CodeNotSupported, "device %s does not declare %s", c.device.ID, c.what.Kind))
}

// failUndeclared rejects what was queued under an earlier connection's supports and is not in
// those of the one that takes its place.
func (s *Server) failUndeclared(d *device) {
	for _, c := range slices.Clone(d.queue) {
		if !d.declares(c.what.Kind) && !c.what.Straggler {
			d.queue = slices.DeleteFunc(d.queue, func(q *Call) bool { return q == c })
			s.notDeclared(c)
		}
	}
}

// failQueued rejects what was never sent, so is safe to retry, less what
// spare (which may be nil) holds.
func (s *Server) failQueued(d *device, why string, spare func(*Call) bool) {
	queue := d.queue
	d.queue = nil
	for _, c := range queue {
		if spare != nil && spare(c) {
			d.queue = append(d.queue, c)
			continue
		}
		s.neverStarted(c, wire.Failf(wire.CodeTargetUnavailable, "%s", why))
	}
}
