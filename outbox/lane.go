package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// Why Append refuses.
var (
	// ErrDropped: nobody may hear of this instruction any more.
	ErrDropped = errors.New("outbox: the instruction was dropped")
	// ErrFinished: the instruction has its outcome already.
	ErrFinished = errors.New("outbox: the instruction has finished")
	// ErrChunk: not a kind or a size that a chunk of output may have.
	ErrChunk = errors.New("outbox: not a chunk of output")
)

// ctxNone is the context of log calls.
var ctxNone = context.Background()

// Lane is the voice of one instruction.
type Lane struct {
	o  *Outbox
	id string

	// All below is guarded by o.mu.
	err     error // sticky answer of Append; nil while the instruction may speak
	chunks  ring  // held: streamSeq base .. base+chunks.n-1
	base    int64 // lowest streamSeq held; the watermark plus one
	cursor  int64 // next streamSeq to hand out on this connection
	sent    int64 // streamSeqs below it were handed out at least once, ever
	bytes   int   // memory of the held chunks
	waiting int   // Append calls that wait for room

	result    wire.Outcome // nil while running
	size      int          // bytes of the result on the wire, at most
	deviceSeq int64
	resultOut bool // handed out on this connection and not due again
	sends     int  // how often the result was handed out, ever

	// On the outbox's clock.
	finished  time.Duration // when the result was given
	firstSend time.Duration // of the result
	lastSend  time.Duration // of the result
	silence   time.Duration // that may follow before the result goes again
	moved     time.Duration // when the watermark last moved, or this connection began
	patience  time.Duration // without progress before chunks go again

	blockedIn  uint64 // the pass of grant that found this lane blocked
	queued     bool   // in o.turns
	next, prev *Lane  // in o.turns
	renumbered int64  // fault: what is taken off each streamSeq
}

// ID is the instruction's id.
func (l *Lane) ID() string { return l.id }

// end is one past the highest streamSeq assigned.
func (l *Lane) end() int64 { return l.base + int64(l.chunks.n) }

// Append numbers data and holds it until the server has acknowledged it. It copies
// data, which must be 1 byte to wire.MaxChunkBytes, of kind stdout, stderr or data
// (else ErrChunk). While there is no room it blocks; it returns ctx.Err() when the
// context ends first, ErrDropped once the instruction may not speak any more and
// ErrFinished after Finish. Calls of one lane are served in the order they came.
func (l *Lane) Append(ctx context.Context, kind wire.ChunkKind, data []byte) error {
	switch {
	case kind != wire.ChunkStdout && kind != wire.ChunkStderr && kind != wire.ChunkData:
		return fmt.Errorf("%w: kind %q", ErrChunk, string(kind))
	case len(data) == 0 || len(data) > wire.MaxChunkBytes:
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrChunk, len(data), wire.MaxChunkBytes)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o := l.o
	o.mu.Lock()
	if l.err != nil {
		err := l.err
		o.unlock()
		return err
	}
	if o.waiters.n == 0 && o.admits(l, sizeFor(len(data))) {
		l.push(kind, data)
		o.unlock()
		return nil
	}
	w := o.enqueue(l, kind, data)
	o.grant()
	o.unlock()

	select {
	case <-w.done:
	case <-ctx.Done():
		o.mu.Lock()
		if w.waiting {
			o.waiters.take(w)
			w.err = ctx.Err()
			o.grant() // the next call of this lane may need less room
			o.unlock()
		} else {
			o.unlock()
			<-w.done // answered meanwhile: the answer stands
		}
	}
	err := w.err
	o.mu.Lock()
	o.recycle(w)
	o.unlock()
	return err
}

// push appends a chunk that was admitted.
func (l *Lane) push(kind wire.ChunkKind, data []byte) {
	o := l.o
	c := chunk{kind: kind}
	if len(data) > 0 {
		c.buf = o.free.get(data)
		l.bytes += cap(c.buf.data)
		o.stats.Bytes += cap(c.buf.data)
		o.stats.PeakBytes = max(o.stats.PeakBytes, o.stats.Bytes)
	}
	l.chunks.push(c)
	o.stats.Chunks++
	o.schedule(l)
}

// release frees the chunks below streamSeq upTo.
func (l *Lane) release(upTo int64) {
	o := l.o
	for l.base < upTo {
		c := l.chunks.pop()
		if c.buf != nil {
			l.bytes -= cap(c.buf.data)
			o.stats.Bytes -= cap(c.buf.data)
			o.free.put(c.buf)
		}
		o.stats.Chunks--
		l.base++
	}
	l.cursor = max(l.cursor, l.base)
}

// Finish gives the instruction its outcome. It never blocks; the first call
// counts. A successful exec puts its exit chunk before the result. An outcome that
// fits no frame becomes a Failure `unknown` that says how large it was.
func (l *Lane) Finish(outcome wire.Outcome) {
	outcome, size := fit(l.id, outcome)
	o := l.o
	o.mu.Lock()
	defer o.unlock()
	if l.err != nil {
		return
	}
	l.err = ErrFinished
	o.refuse(l, ErrFinished)
	if exec, ok := outcome.(wire.ExecOutcome); ok && !fault.On("outbox: no exit chunk") {
		l.chunks.push(chunk{kind: wire.ChunkExit, exitCode: exec.ExitCode})
		o.stats.Chunks++
	}
	o.deviceSeq++ // from 1: a server that counts from 0 must not take the first for a repetition
	l.deviceSeq = o.deviceSeq
	l.result, l.size, l.finished = outcome, size, o.clock()
	o.stats.Results++
	o.stats.ResultBytes += size
	o.schedule(l)
	o.bound()
	o.grant()
}

// Stalled reports whether output is held back: an Append waits for room, or there
// is no connection. The clock of a command's last words stands still meanwhile.
func (l *Lane) Stalled() bool {
	l.o.mu.Lock()
	defer l.o.unlock()
	return l.waiting > 0 || !l.o.live
}
