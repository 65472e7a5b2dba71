package instructions

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-agent/device-executor/wire"
)

// Handler does the work of one kind and returns its one outcome. It runs on a
// goroutine of its own; a panic in it becomes an `unknown` failure, or
// `outcome_unknown` where its effect may have been.
//
// The context ends on a cancel, at timeoutMs, at the fence and at the end of a
// drain. A handler that stops because of that returns [Call.Stopped]; one that
// had finished all the same returns its ordinary outcome. One that does not
// return in time (a call stuck in the kernel) is answered for, see [Call.Begin].
type Handler func(ctx context.Context, c *Call) wire.Outcome

// Output takes what an instruction has to say before its outcome. Append copies
// data (1 byte to 64 KiB), blocks while the outbox is full, and fails once the
// context has ended or nobody may hear of the instruction any more; the handler
// then stops its work. Chunks are never of kind exit: that one is the outbox's.
type Output interface {
	Append(ctx context.Context, kind wire.ChunkKind, data []byte) error
	// Stalled reports whether output is held back now: an Append waits for room, or
	// there is no connection.
	Stalled() bool
}

// Call is one instruction on its way through its handler.
type Call struct {
	// In is the frame. Its args are decoded in Args, and its Problem is nil.
	In *wire.Instruction
	// Args has the concrete type that belongs to the kind (see wire.Args).
	Args wire.Args
	// Out takes the output.
	Out Output
	// Content carries the payload frames; nil unless the kind takes a payload.
	Content *Content

	gate gate
}

// gate is the dispatcher's side of a call. A Call made without one (in a test
// of a handler) begins whenever its context is alive.
type gate interface {
	begin(ctx context.Context) error
	begun() bool
	endedProcesses(n int)
	survived()
}

// Begin is called once, right before the first step that the world could notice:
// before it a cancel is answered `not_started`, after it `killed`. It waits for
// the instruction's turn among maxInflight (a handler whose kind takes a payload
// is started at once, so that content is received while the instruction waits).
//
// An error means that the work must not be done; return [Call.Stopped] then.
// This holds also for a call that comes late, after the dispatcher had to answer
// for a stuck handler: what was reported as not done will not be done.
//
// For kinds without effects (reads and looks) the dispatcher has begun already,
// and Begin need not be called.
func (c *Call) Begin(ctx context.Context) error {
	if c.gate != nil {
		return c.gate.begin(ctx)
	}
	return context.Cause(ctx)
}

// Stopped is the outcome of work that ended because its context did, and that is
// known to have ended: `cancelled` (not_started or killed), `timeout`, `aborted`
// or `target_unavailable`, as the context's cause and Begin have it.
func (c *Call) Stopped(ctx context.Context) wire.Outcome {
	return stopped(context.Cause(ctx), c.gate != nil && c.gate.begun(), c.In)
}

// EndedProcesses reports how many processes outlived their command and were ended
// with it. It is for the local record only.
func (c *Call) EndedProcesses(n int) {
	if c.gate != nil {
		c.gate.endedProcesses(n)
	}
}

// Survived reports that not all of a command is known to be dead, whatever its outcome
// says. It is for the fence.
func (c *Call) Survived() {
	if c.gate != nil {
		c.gate.survived()
	}
}

// Why the context of an instruction ended.
var (
	errCancel  = errors.New("the server cancelled the instruction")
	errTimeout = errors.New("timeoutMs ran out")
	errFence   = errors.New("the server no longer lists the instruction")
	errAbort   = errors.New("the executor is stopping and its drain time is over")
	errLeave   = errors.New("the executor is leaving and starts nothing new")
)

func stopped(cause error, begun bool, in *wire.Instruction) wire.Outcome {
	switch {
	case errors.Is(cause, errCancel):
		state := wire.CancelNotStarted
		if begun {
			state = wire.CancelKilled
		}
		return wire.CancelledOutcome{State: state}
	case errors.Is(cause, errTimeout) && begun:
		return wire.Failf(wire.CodeTimeout, "%s: stopped after timeoutMs (%d ms, counted from its receipt); it no longer runs", in.Kind, in.TimeoutMs)
	case errors.Is(cause, errTimeout):
		return wire.Failf(wire.CodeTimeout, "%s: timeoutMs (%d ms, counted from its receipt) ran out before it started; nothing was done", in.Kind, in.TimeoutMs)
	case (errors.Is(cause, errAbort) || errors.Is(cause, errFence)) && begun: // of the fence nobody hears
		return wire.Failf(wire.CodeAborted, "%s: stopped, because %v", in.Kind, cause)
	case errors.Is(cause, errAbort), errors.Is(cause, errFence), errors.Is(cause, errLeave):
		return wire.Failf(wire.CodeTargetUnavailable, "%s: never started, because %v", in.Kind, cause)
	}
	// A handler that says it was stopped, and was not.
	return wire.Failure{Code: wire.CodeOutcomeUnknown, Message: fmt.Sprintf("%s: stopped: %v", in.Kind, cause)}
}
