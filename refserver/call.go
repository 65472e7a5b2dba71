package refserver

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Call is one instruction given to a device.
type Call struct {
	s         *Server
	device    *device
	id        string
	what      Dispatch
	args      json.RawMessage
	digest    string
	done      chan struct{}
	committed time.Time

	// Guarded by the server's mutex.
	state      wire.InstructionState
	conn       int64 // the connection that it was last sent or listed on
	settlement Settlement
	ceiling    *timer

	// The cancel: wanted at all, and the generation it was last written to.
	cancelWanted bool
	cancelGen    wire.Gen
	cancelGrace  *timer

	// The stream.
	next       int64 // the streamSeq waited for
	early      map[int64]*wire.Chunk
	earlyBytes int
	gap        *timer
	sums       []uint64 // of the latest accepted chunks, to know a changed resend
	exitSeq    int64    // streamSeq of the first exit chunk

	// Delivery; delivered trails next.
	pending      []*wire.Chunk
	pendingBytes int
	delivering   bool  // Deliver is running
	delivered    int64 // the first streamSeq not yet delivered
	told         int64 // the watermark that the latest helloAck carried
	muted        bool  // deliver nothing more
	wake         chan struct{}

	// The terminal, once a result was accepted.
	terminal  *wire.Result
	deviceSeq int64 // the highest accepted; -1: none
}

// sumSeed makes a chunk's sum; within a process alone.
var sumSeed = maphash.MakeSeed()

func newCall(s *Server, d *device, what Dispatch, args json.RawMessage, digest string) *Call {
	return &Call{s: s, device: d, id: s.mintID("ins_"), what: what, args: args, digest: digest,
		done: make(chan struct{}), wake: make(chan struct{}, 1), state: wire.StateQueued,
		early: map[int64]*wire.Chunk{}, exitSeq: -1, deviceSeq: -1}
}

// ID is the instruction's id.
func (c *Call) ID() string { return c.id }

// Kind is what was asked for.
func (c *Call) Kind() wire.Kind { return c.what.Kind }

// State is where the server's books have the instruction (§5.1).
func (c *Call) State() wire.InstructionState {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.state
}

// Watermark is what the last chunkAck carried or could have: the highest
// streamSeq taken in order (with AckDelivered: and delivered); -1: none.
func (c *Call) Watermark() int64 {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.watermark()
}

// Done is closed when the call is settled and its consumer will not be called
// any more.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait waits for the settlement.
func (c *Call) Wait(ctx context.Context) (Settlement, error) {
	select {
	case <-c.done:
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return c.settlement, nil
	case <-ctx.Done():
		return Settlement{}, fmt.Errorf("waiting for %s (%s): %w", c.id, c.what.Kind, ctx.Err())
	}
}

// Cancel asks for the instruction's end (R11): before the commit it settles
// not_started at once; after it the device is told, once per generation, again
// after a reconnect. It does not wait. A settled call is left alone.
func (c *Call) Cancel() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.cancel()
}

func (c *Call) cancel() {
	switch c.state {
	case wire.StateQueued:
		c.device.queue = slices.DeleteFunc(c.device.queue, func(q *Call) bool { return q == c })
		c.s.settle(c, Settlement{Outcome: wire.CancelledOutcome{State: wire.CancelNotStarted},
			State: wire.StateTerminalNeverStarted, By: ByQueuedCancel})
	case wire.StateDispatchCommitted:
		c.cancelWanted = true
		c.deliverCancel()
	}
}

// deadlines are those by which the device owes something: its result (R12), its answer to a
// cancel (R11), a missing chunk (R8).
func (c *Call) deadlines() []*timer { return []*timer{c.ceiling, c.cancelGrace, c.gap} }

// deliverCancel writes the cancel if one is wanted, the device is active, and
// neither this generation has had it nor the device answered.
func (c *Call) deliverCancel() {
	k := c.device.current
	if !c.cancelWanted || c.terminal != nil || !c.device.active() || c.cancelGen == k.gen {
		return
	}
	c.cancelGen = k.gen
	k.send(&wire.Cancel{Gen: k.gen, InstructionID: c.id})
	c.cancelGrace.stop()
	c.cancelGrace = c.s.after(c.s.cfg.CancelGrace, func() {
		c.s.record(Violation{Reason: CancelUnanswered, Refused: true, Excused: c.device.current == nil, DeviceID: c.device.ID,
			InstructionID: c.id, Gen: c.cancelGen, Detail: "no result within the cancel grace"})
		c.s.writeOff(c, ByCancelGrace, "the device did not answer the cancel within the grace")
	})
}
