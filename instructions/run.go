package instructions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/stream"
	"github.com/sema-agent/device-executor/wire"
)

// The times of a command's end.
const (
	// linger is how long what the shell left running may go on: a hook's last
	// words, a tee that has not written all. It counts only while we are reading.
	linger = time.Second
	// lingerStep is how often it is looked whether we are.
	lingerStep = 10 * time.Millisecond
	// grace is the time between TERM and KILL.
	grace = 2 * time.Second
	// endWithin bounds the ending of a tree; with lastWords it stays below
	// patienceWithCommands.
	endWithin = 7 * time.Second
	// lastWords is how long output still on its way may take to find room in the
	// outbox once the instruction's context has ended.
	lastWords = 500 * time.Millisecond
)

// run takes a started command to its outcome.
func run(ctx context.Context, call *Call, cmd process.Command, log *slog.Logger) wire.Outcome {
	defer cmd.Release()

	// Output goes on after a cancel: what a command says on TERM is still its word.
	outCtx, dropOutput := context.WithCancel(context.WithoutCancel(ctx))
	out := pump(outCtx, call.Out, cmd)
	defer func() {
		dropOutput()
		out.cut()
		<-out.drained
	}()

	select {
	case <-cmd.Exited():
	case <-ctx.Done():
	}
	// The shell's own end stands, even if the context ended at the same moment.
	finished := closed(cmd.Exited())
	if finished {
		awaitRest(ctx, call.Out, cmd, out)
	}
	var endErr error
	if !closed(cmd.Gone()) {
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
		endErr = cmd.End(endCtx, grace)
		cancel()
	}
	call.EndedProcesses(cmd.Ended())
	if endErr != nil {
		call.Survived()
		log.Warn("a command is over, but not all of it is known to be dead", "id", call.In.InstructionID, "err", endErr)
	}

	// Whoever holds a pipe now is out of reach: read what is there and no more.
	out.cut()
	select {
	case <-out.drained:
	case <-ctx.Done():
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-out.drained:
		case <-late.C:
			dropOutput()
			<-out.drained
		}
	}

	kind := call.In.Kind
	switch {
	case finished && cmd.Err() == nil && out.complete():
		if fault.On("instructions: every command succeeded") {
			return wire.ExecOutcome{}
		}
		return wire.ExecOutcome{ExitCode: int64(cmd.ExitCode())}
	case endErr != nil && ctx.Err() != nil:
		return wire.Failf(wire.CodeOutcomeUnknown, "%s: %v, but not all of the command is known to be dead: %v", kind, context.Cause(ctx), endErr)
	case ctx.Err() != nil:
		return call.Stopped(ctx)
	case cmd.Err() != nil:
		return wire.Failf(wire.CodeOutcomeUnknown, "%s: the command ran, but how it ended is not known: %v", kind, cmd.Err())
	}
	return wire.Failf(wire.CodeOutcomeUnknown, "%s: the command ran, but not all of its output could be read: %v", kind, out.err())
}

// awaitRest waits, after the shell's end, for what it left behind: until no
// process is left and the pipes are at their end, until the linger is over, or
// until the context ends.
func awaitRest(ctx context.Context, o Output, cmd process.Command, out *pumps) {
	left := linger
	tick := time.NewTicker(lingerStep)
	defer tick.Stop()
	last := time.Now()
	gone, drained := cmd.Gone(), out.drained
	for gone != nil || drained != nil {
		select {
		case <-gone:
			gone = nil
		case <-drained:
			drained = nil
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if !o.Stalled() {
				left -= now.Sub(last)
			}
			last = now
			if left <= 0 {
				return
			}
		}
	}
}

// pumps carry a command's two streams into its output.
type pumps struct {
	pipes   [2]*source
	errs    [2]error // valid once drained
	running sync.WaitGroup
	drained chan struct{}
}

func pump(ctx context.Context, o Output, cmd process.Command) *pumps {
	p := &pumps{drained: make(chan struct{})}
	for i, s := range []struct {
		pipe process.Pipe
		kind wire.ChunkKind
	}{{cmd.Stdout(), wire.ChunkStdout}, {cmd.Stderr(), wire.ChunkStderr}} {
		p.pipes[i] = &source{pipe: s.pipe}
		p.running.Go(func() {
			p.errs[i] = stream.Pump(ctx, p.pipes[i], func(ctx context.Context, data []byte) error {
				if fault.On("instructions: both streams are stdout") {
					return o.Append(ctx, wire.ChunkStdout, data)
				}
				return o.Append(ctx, s.kind, data)
			})
		})
	}
	go func() {
		p.running.Wait()
		close(p.drained)
	}()
	return p
}

// cut makes the pipes end where a read would block.
func (p *pumps) cut() {
	for _, s := range p.pipes {
		s.cut()
	}
}

// complete reports whether both streams were handed over to their end. Valid once
// drained.
func (p *pumps) complete() bool { return p.err() == nil }

func (p *pumps) err() error { return errors.Join(p.errs[:]...) }

// source reads a pipe to its end or, once cut, until there is nothing to read.
type source struct {
	pipe  process.Pipe
	isCut atomic.Bool
}

func (s *source) Read(b []byte) (int, error) {
	if !s.isCut.Load() {
		n, err := s.pipe.Read(b)
		if n > 0 || err == nil || err == io.EOF {
			return n, err
		}
		if !s.isCut.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, fmt.Errorf("read the command's output: %w", err)
		}
	}
	n, err := s.pipe.ReadAvailable(b)
	if errors.Is(err, process.ErrWouldBlock) {
		return n, io.EOF
	}
	return n, err
}

// SetReadDeadline lets stream.Pump wake a Read.
func (s *source) SetReadDeadline(t time.Time) error { return s.pipe.SetReadDeadline(t) }

func (s *source) cut() {
	s.isCut.Store(true)
	// Wakes a Read under way; one that comes later looks at isCut or returns at once.
	_ = s.pipe.SetReadDeadline(time.Unix(1, 0))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
