package instructions

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// Bounds of a Dispatcher.
const (
	// defaultInflight holds until a helloAck said otherwise (§1.5).
	defaultInflight = 4
	// mostInflight is the most that a server may ask for.
	mostInflight = 256
	// mostWaiting is how many instructions may wait for their turn. A server keeps
	// to maxInflight, so what is above is a flood: it is answered
	// `target_unavailable`, which is true, since it never starts.
	mostWaiting = 256
	// mostWaitingBytes bounds the args and environments of what waits.
	mostWaitingBytes = 32 << 20
	// mostStuck is how many calls stuck in the kernel are borne; from there on
	// file instructions are answered `target_unavailable`.
	mostStuck = 64
	// longestTimeout is where timeoutMs is clamped; the wire allows 285,000 years.
	longestTimeout = 10 * 365 * 24 * time.Hour
)

// Config is what a Dispatcher is made of.
type Config struct {
	Outbox   *outbox.Outbox
	Handlers map[wire.Kind]Handler // what can be done
	Excluded []wire.Kind           // kinds of Handlers that are not declared
	Observe  Observer              // nil: nobody watches
	Log      *slog.Logger          // nil: no log. Gets ids, kinds and counts
	Now      func() time.Time      // nil: time.Now
}

// Dispatcher owns instructions. Its methods may be called from any goroutine;
// none of them blocks, except Payload (for a moment), End, Abort, Wait and Close.
type Dispatcher struct {
	outbox   *outbox.Outbox
	handlers map[wire.Kind]Handler
	supports []wire.Kind
	observe  Observer
	log      *slog.Logger
	now      func() time.Time
	window   *window
	calls    sync.WaitGroup // works whose end is not told yet, handlers that have not returned

	mu           sync.Mutex // never held over anything that waits
	live         []*work    // owned and not settled, in the order of arrival
	byID         map[string]*work
	seen         *seen
	inflight     int // most that may run
	running      int // live works that have their turn
	waitingBytes int // of live works that do not
	stuck        int // handlers answered for that have not returned
	left         bool
}

// New makes a Dispatcher. The kinds it declares are those of c.Handlers less
// c.Excluded, for the whole of its life (§3.2).
func New(c Config) *Dispatcher {
	d := &Dispatcher{
		outbox:   c.Outbox,
		handlers: make(map[wire.Kind]Handler),
		observe:  c.Observe,
		log:      c.Log,
		now:      c.Now,
		window:   newWindow(),
		byID:     make(map[string]*work),
		seen:     newSeen(seenGeneration),
		inflight: defaultInflight,
	}
	if d.observe == nil {
		d.observe = nobody{}
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.now == nil {
		d.now = time.Now
	}
	for _, k := range wire.Kinds() {
		h := c.Handlers[k]
		if h == nil || slices.Contains(c.Excluded, k) {
			continue
		}
		d.handlers[k] = h
		d.supports = append(d.supports, k)
	}
	return d
}

// Supports lists the declared kinds in the protocol's order.
func (d *Dispatcher) Supports() []wire.Kind { return slices.Clone(d.supports) }

// Instruct takes an instruction over: from here on it is owed one answer (R1). An
// id that was seen before is ignored; what cannot be done is answered at once.
func (d *Dispatcher) Instruct(in *wire.Instruction) {
	received := d.now()
	h, declared := d.handlers[in.Kind]
	var args wire.Args
	var argsErr error
	if in.Problem == nil && declared {
		args, argsErr = wire.DecodeArgs(in.Kind, in.Args)
	}
	w := newWork(d, in, args, h, received)

	d.mu.Lock()
	if d.seen.has(in.InstructionID) && !fault.On("instructions: run a known id again") {
		d.mu.Unlock()
		w.cancel(context.Canceled)
		d.log.Warn("an instruction came twice; it is not run again", "id", in.InstructionID, "kind", in.Kind)
		return
	}
	old := d.seen.mayHave(in.InstructionID)
	d.seen.add(in.InstructionID)
	waiting := len(d.live) - d.running
	refusal := func() wire.Outcome {
		switch {
		case in.Problem != nil:
			return wire.Failf(wire.CodeInvalid, "malformed instruction: %v", in.Problem)
		case !declared:
			return wire.Failf(wire.CodeNotSupported, "this executor does not do %q", in.Kind)
		case argsErr != nil:
			return wire.Failf(wire.CodeInvalid, "%s: args: %v", in.Kind, argsErr)
		case old:
			return wire.Failf(wire.CodeOutcomeUnknown, "%s: the instruction's id is older than all that this executor remembers; it was not run now, but may have been before", in.Kind)
		case d.left:
			return stopped(errLeave, false, in)
		case in.TimeoutMs <= 0:
			return stopped(errTimeout, false, in)
		case waiting >= mostWaiting, waiting > 0 && d.waitingBytes+w.size > mostWaitingBytes:
			return wire.Failf(wire.CodeTargetUnavailable, "%s: never started: %d instructions are waiting for their turn already (at most %d run at once)", in.Kind, waiting, d.inflight)
		case d.stuck >= mostStuck && !runsCommands(in.Kind):
			return wire.Failf(wire.CodeTargetUnavailable, "%s: never started: %d file operations are stuck in this machine's kernel (a dead mount?)", in.Kind, d.stuck)
		}
		return nil
	}()
	w.lane = d.outbox.Open(in.InstructionID)
	if refusal == nil {
		d.live = append(d.live, w)
		d.byID[w.id] = w
		d.waitingBytes += w.size
	}
	d.mu.Unlock()

	w.tellReceived()
	if refusal != nil {
		w.cancel(context.Canceled)
		switch {
		case !declared && fault.On("instructions: an undeclared kind is not answered"),
			argsErr != nil && fault.On("instructions: bad args are not answered"),
			declared && argsErr == nil && fault.On("instructions: a straggler is not answered"):
			return
		}
		w.lane.Finish(refusal)
		w.tellEnded(Report{Ended: d.now(), Outcome: refusal})
		return
	}
	w.start()
	d.mu.Lock()
	d.grant()
	d.mu.Unlock()
}

// grant gives turns away, in the order of arrival. The caller holds mu.
func (d *Dispatcher) grant() {
	for _, w := range d.live {
		if d.running >= d.inflight || d.running >= 1 && fault.On("instructions: one at a time") {
			return
		}
		if !w.hasTurn && w.ctx.Err() == nil {
			w.hasTurn = true
			d.running++
			d.waitingBytes -= w.size
			close(w.turn)
		}
	}
}

// Payload takes a payload frame over, its data included. It blocks while the
// instruction's handler is behind with its disk, for 5 s at most; then the
// content is given up and the instruction fails. Frames for ids that are not
// worked on, or that take no payload, are dropped.
func (d *Dispatcher) Payload(p *wire.Payload) {
	d.mu.Lock()
	w := d.byID[p.InstructionID]
	d.mu.Unlock()
	if w == nil || w.call.Content == nil {
		d.log.Debug("a payload frame that nobody waits for", "id", p.InstructionID, "part", p.Part)
		return
	}
	w.call.Content.put(p)
}

// Cancel ends an instruction at the server's wish (R11). It does nothing for an id
// that is not worked on (its answer is on its way) and when repeated.
func (d *Dispatcher) Cancel(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.byID[id]; w != nil && !fault.On("instructions: cancel is not heeded") {
		w.cancel(errCancel)
	}
}

// Disconnected says that the connection is gone, and with it the rest of every
// payload under way: those instructions fail, nothing written. To be called
// before anything of the next connection is handed in.
func (d *Dispatcher) Disconnected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.live {
		if w.call.Content != nil {
			w.call.Content.cut()
		}
		if fault.On("instructions: a disconnect ends all work") {
			w.cancel(errAbort)
		}
	}
}

// SetMaxInflight says how many instructions are worked on at once (1 to 256). Less
// than what runs stops nothing.
func (d *Dispatcher) SetMaxInflight(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inflight = min(max(n, 1), mostInflight)
	d.grant()
}

// Inflight lists what runs or waits, in the order of arrival.
func (d *Dispatcher) Inflight() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]string, len(d.live))
	for i, w := range d.live {
		ids[i] = w.id
	}
	return ids
}

// Seen reports whether an id was taken over or answered in this process, or is so
// old that it may have been.
func (d *Dispatcher) Seen(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen.has(id) || d.seen.mayHave(id)
}

// Stuck counts handlers that were answered for because a call of theirs does not
// come back from the kernel.
func (d *Dispatcher) Stuck() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stuck
}

// Answer gives the outcome for an id that the server lists and for which nobody else
// will speak: never seen, released, or ended by the fence and perhaps still dying. The
// id will not be run afterwards.
func (d *Dispatcher) Answer(id string, o wire.Outcome) {
	d.mu.Lock()
	if w := d.byID[id]; w != nil && (!w.fenced || fault.On("instructions: what still dies is not answered")) {
		d.mu.Unlock()
		return
	}
	d.seen.add(id)
	lane := d.outbox.Open(id)
	d.mu.Unlock()
	lane.Finish(o)
}

// End ends the listed instructions silently (§1.5): what they still hold is
// dropped and nothing is said about them. It returns those that are not known to
// be dead when ctx ends.
func (d *Dispatcher) End(ctx context.Context, ids []string) (stuck []string) {
	var ending []*work
	for _, id := range ids {
		d.mu.Lock()
		w := d.byID[id]
		if w != nil {
			w.fenced = true
			ending = append(ending, w)
		}
		d.mu.Unlock()
		// Before the work is told: what it would still say must find no way out.
		d.outbox.Drop(id)
		if w != nil {
			w.cancel(errFence)
		}
	}
	for _, w := range ending {
		select {
		case <-w.done:
			if w.maybeAlive {
				stuck = append(stuck, w.id)
			}
		case <-ctx.Done():
			stuck = append(stuck, w.id)
		}
	}
	return stuck
}

// Leave is for the time after goodbye: what waits, and what still comes, never
// starts and is answered so (§1.6). What runs goes on.
func (d *Dispatcher) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = true
	for _, w := range d.live {
		if !w.hasTurn {
			w.cancel(errLeave)
		}
	}
}

// Abort leaves, ends all that runs (answered `aborted`) and waits until it is
// over, or for ctx.
func (d *Dispatcher) Abort(ctx context.Context) error {
	d.Leave()
	d.mu.Lock()
	for _, w := range d.live {
		w.cancel(errAbort)
	}
	d.mu.Unlock()
	return d.Wait(ctx)
}

// Wait waits until nothing runs or waits, or for ctx.
func (d *Dispatcher) Wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		if len(d.live) == 0 {
			d.mu.Unlock()
			return nil
		}
		w := d.live[0]
		d.mu.Unlock()
		select {
		case <-w.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close aborts and waits until every handler has returned and the observer was told
// of every end. Handlers stuck in the kernel are waited for until ctx ends, which is
// then the error.
func (d *Dispatcher) Close(ctx context.Context) error {
	if err := d.Abort(ctx); err != nil {
		return err
	}
	returned := make(chan struct{})
	go func() {
		d.calls.Wait()
		close(returned)
	}()
	select {
	case <-returned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
