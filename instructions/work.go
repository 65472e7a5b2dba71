package instructions

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// How long a handler may take to return after its context ended, before it is
// answered for. The server's patience with a cancel is 10 s.
const (
	// patienceWithReads is for what has had no effect.
	patienceWithReads = 250 * time.Millisecond
	// patienceWithWrites is for what is past the step that changes something: its
	// true outcome is worth waiting for.
	patienceWithWrites = 5 * time.Second
	// patienceWithCommands covers grace, KILL and the look whether all are dead.
	patienceWithCommands = 8 * time.Second
)

// work is one instruction from its receipt to its answer.
type work struct {
	d        *Dispatcher
	id       string
	kind     wire.Kind
	in       *wire.Instruction
	size     int // bytes of args and environment
	handler  Handler
	call     *Call
	lane     *outbox.Lane
	received time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	turn   chan struct{} // closed when it is this work's turn
	done   chan struct{} // closed when it is settled

	bytesOut atomic.Int64

	// Under d.mu.
	hasTurn        bool
	started        time.Time // zero: has not begun
	abandoned      bool      // answered for
	back           bool      // its handler has returned
	fenced         bool
	processesEnded int
	survivors      bool // not all of its command is known to be dead

	maybeAlive bool // written before done is closed

	tell  sync.Mutex // orders what the observer hears
	ended bool       // under tell
}

func newWork(d *Dispatcher, in *wire.Instruction, args wire.Args, h Handler, received time.Time) *work {
	w := &work{
		d: d, id: in.InstructionID, kind: in.Kind, in: in, handler: h, received: received,
		size: len(in.Args),
		turn: make(chan struct{}), done: make(chan struct{}),
	}
	for name, value := range in.ShellEnv {
		w.size += len(name) + len(value)
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.call = &Call{In: in, Args: args, Out: (*output)(w), gate: w}
	if in.Kind.TakesPayload() {
		w.call.Content = newContent(d.window)
	}
	return w
}

// start sets the work on its way. Its time counts from here.
func (w *work) start() {
	timeout := longestTimeout
	if w.in.TimeoutMs < longestTimeout.Milliseconds() {
		timeout = time.Duration(w.in.TimeoutMs) * time.Millisecond
	}
	if fault.On("instructions: timeoutMs is not kept") {
		timeout = longestTimeout
	}
	w.timer = time.AfterFunc(timeout, func() { w.cancel(errTimeout) })
	w.d.calls.Go(w.run)
}

func (w *work) run() {
	// Content is received while its instruction waits; such a handler waits for its
	// turn in Begin. All others wait here.
	if !w.kind.TakesPayload() {
		if err := w.awaitTurn(); err != nil {
			w.settle(stopped(err, false, w.in), false)
			return
		}
		if isLook(w.kind) && w.begin(w.ctx) != nil {
			w.settle(stopped(context.Cause(w.ctx), false, w.in), false)
			return
		}
	}
	w.settle(w.guarded())
}

// guarded runs the handler and waits for its outcome; if it does not come in time
// after the context ended, it is answered for.
func (w *work) guarded() (o wire.Outcome, abandoned bool) {
	outcome := make(chan wire.Outcome, 1)
	w.d.calls.Go(func() {
		outcome <- w.handle()
		w.returned()
	})
	select {
	case o := <-outcome:
		return o, false
	case <-w.ctx.Done():
	}
	patience := time.NewTimer(patienceWithReads)
	defer patience.Stop()
	select {
	case o := <-outcome:
		return o, false
	case <-patience.C:
	}
	if o := w.abandon(false); o != nil {
		return o, true
	}
	rest := patienceWithWrites
	if runsCommands(w.kind) {
		rest = patienceWithCommands
	}
	patience.Reset(rest - patienceWithReads)
	select {
	case o := <-outcome:
		return o, false
	case <-patience.C:
	}
	if o := w.abandon(true); o != nil {
		return o, true
	}
	return <-outcome, false
}

func (w *work) handle() (o wire.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			w.d.log.Error("a handler panicked", "id", w.id, "kind", w.kind, "panic", p, "stack", string(debug.Stack()))
			o = w.broken("the executor itself failed while working on this")
		}
	}()
	return w.handler(w.ctx, w.call)
}

// broken is the outcome of a handler that failed its own part. Where it had begun,
// the effect may have been (§3.3).
func (w *work) broken(how string) wire.Outcome {
	if w.begun() && !isLook(w.kind) {
		return wire.Failf(wire.CodeOutcomeUnknown, "%s: %s; what was done until then is not known", w.kind, how)
	}
	return wire.Failf(wire.CodeUnknown, "%s: %s; nothing was changed", w.kind, how)
}

// abandon gives the answer for a handler that does not return: what had no effect,
// and now cannot have one any more, is answered as stopped. What is past its Begin
// may or may not happen; it is nil for as long as its true outcome may be waited for,
// and where that is there after all.
func (w *work) abandon(finally bool) wire.Outcome {
	w.d.mu.Lock()
	begun := !w.started.IsZero()
	if w.back && !fault.On("instructions: who came back counts as stuck") || begun && !isLook(w.kind) && !finally {
		w.d.mu.Unlock()
		return nil
	}
	w.abandoned = true
	w.d.stuck++
	stuck := w.d.stuck
	w.d.mu.Unlock()

	cause := context.Cause(w.ctx)
	w.d.log.Warn("a call is stuck in the kernel; its instruction is answered without it", "id", w.id, "kind", w.kind, "because", cause, "stuck", stuck)
	switch {
	case !begun:
		return stopped(cause, false, w.in)
	case isLook(w.kind) && errors.Is(cause, errTimeout):
		return wire.Failf(wire.CodeTimeout, "%s: this machine's file system did not answer within timeoutMs (%d ms); nothing was changed", w.kind, w.in.TimeoutMs)
	case isLook(w.kind):
		return stopped(cause, true, w.in)
	}
	return wire.Failf(wire.CodeOutcomeUnknown, "%s: %v, but the work does not come back from this machine's kernel; it may still take effect", w.kind, cause)
}

// returned is called by a handler's goroutine when it has come back.
func (w *work) returned() {
	w.d.mu.Lock()
	w.back = true
	late := w.abandoned
	if late {
		w.d.stuck--
	}
	w.d.mu.Unlock()
	if late {
		w.d.log.Info("a stuck call came back", "id", w.id, "kind", w.kind)
	}
}

// settle gives the one answer and lets go of the work.
func (w *work) settle(o wire.Outcome, abandoned bool) {
	w.timer.Stop()
	if !wire.Fits(w.kind, o) {
		w.d.log.Error("a handler's outcome does not fit its kind", "id", w.id, "kind", w.kind)
		o = w.broken("the executor itself failed to say how this ended")
	}
	// Into the outbox first: at every moment the id is here or there, so that a
	// fence cannot take it for one that was released. On a fenced lane this says
	// nothing.
	w.lane.Finish(o)
	w.cancel(context.Canceled)
	var bytesIn int64
	if w.call.Content != nil {
		w.call.Content.Close()
		bytesIn = w.call.Content.bytesIn()
	}

	d := w.d
	d.mu.Lock()
	for i, l := range d.live {
		if l == w {
			d.live = append(d.live[:i:i], d.live[i+1:]...)
			break
		}
	}
	delete(d.byID, w.id)
	if w.hasTurn {
		d.running--
	} else {
		d.waitingBytes -= w.size
	}
	d.grant()
	report := Report{
		Started: w.started, Ended: d.now(),
		BytesIn: bytesIn, BytesOut: w.bytesOut.Load(),
		Outcome: o, Fenced: w.fenced,
		ProcessesEnded: w.processesEnded, Stuck: abandoned,
	}
	f, failed := o.(wire.Failure)
	w.maybeAlive = abandoned || w.survivors || failed && f.Code == wire.CodeOutcomeUnknown && runsCommands(w.kind)
	d.mu.Unlock()

	w.tellEnded(report)
	close(w.done)
}

// awaitTurn waits until the work may run. An ended context wins over a turn.
func (w *work) awaitTurn() error {
	select {
	case <-w.turn:
	case <-w.ctx.Done():
	}
	return context.Cause(w.ctx)
}

// begin implements gate.
func (w *work) begin(ctx context.Context) error {
	if err := w.awaitTurn(); err != nil {
		return err
	}
	w.d.mu.Lock()
	if w.abandoned || w.ctx.Err() != nil {
		w.d.mu.Unlock()
		return context.Cause(w.ctx)
	}
	first := w.started.IsZero()
	if first {
		w.started = w.d.now()
	}
	started := w.started
	w.d.mu.Unlock()
	if first {
		w.tellStarted(started)
	}
	return nil
}

// begun implements gate.
func (w *work) begun() bool {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return !w.started.IsZero() && !fault.On("instructions: what began is called not started")
}

// endedProcesses implements gate.
func (w *work) endedProcesses(n int) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.processesEnded += n
}

// survived implements gate.
func (w *work) survived() {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.survivors = true
}

func (w *work) about() Work {
	return Work{ID: w.id, Kind: w.kind, RootSessionID: w.in.RootSessionID, Args: w.call.Args, Received: w.received}
}

func (w *work) tellReceived() { w.d.observe.Received(w.about()) }

func (w *work) tellStarted(at time.Time) {
	w.tell.Lock()
	defer w.tell.Unlock()
	if !w.ended {
		w.d.observe.Started(w.about(), at)
	}
}

func (w *work) tellEnded(r Report) {
	w.tell.Lock()
	defer w.tell.Unlock()
	w.ended = true
	w.d.observe.Ended(w.about(), r)
}

// output is the work's way into the outbox.
type output work

// Append implements Output.
func (o *output) Append(ctx context.Context, kind wire.ChunkKind, data []byte) error {
	if fault.On("instructions: output is logged") {
		o.d.log.Info("output", "id", o.id, "data", string(data))
	}
	err := o.lane.Append(ctx, kind, data)
	if err == nil {
		o.bytesOut.Add(int64(len(data)))
	}
	return err
}

// Stalled implements Output.
func (o *output) Stalled() bool { return o.lane.Stalled() }

// runsCommands reports whether k starts processes.
func runsCommands(k wire.Kind) bool { return k == wire.KindExec || k == wire.KindExecStream }

// isLook reports whether k has no effect on the machine.
func isLook(k wire.Kind) bool {
	switch k {
	case wire.KindReadTextFile, wire.KindReadTextLines, wire.KindReadBinaryFile, wire.KindFileInfo, wire.KindListDir,
		wire.KindCanonicalPath, wire.KindExists, wire.KindReadLink, wire.KindStatBatch:
		return true
	}
	return false
}
