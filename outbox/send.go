package outbox

import (
	"log/slog"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// window is how many chunks of a lane may be under way past its watermark. With
// the first of them lost, the others just fit a server's reorder buffer (R8).
const window = 64

// Ready carries a signal when Next may have a frame again. It is 1-buffered: take
// the signal, then call Next until it has none.
func (o *Outbox) Ready() <-chan struct{} { return o.ready }

// Next appends the next frame to dst and returns it, stamped with the generation
// of the connection; ok is false when there is nothing to send now. Lanes take
// turns. A frame handed out counts as sent: if the connection ends before it left,
// the next Resume has it sent again.
func (o *Outbox) Next(dst []byte) (frame []byte, ok bool) {
	o.mu.Lock()
	defer o.unlock()
	for {
		l := o.turns.take()
		if l == nil {
			return dst, false
		}
		if !l.chunkDue() && !l.resultDue() {
			continue // all that was due again has been acknowledged while it waited
		}
		frame, err := o.speak(l, dst)
		if err != nil {
			// Only an id that no frame can hold comes here.
			o.note(slog.LevelError, "instruction given up: it fits no frame", l.id, slog.Any("err", err))
			o.stats.GivenUp++
			o.remove(l, ErrDropped)
			o.grant()
			continue
		}
		o.schedule(l)
		return frame, true
	}
}

// speak encodes the next frame of a lane that has one to send.
func (o *Outbox) speak(l *Lane, dst []byte) ([]byte, error) {
	if l.chunkDue() {
		return o.speakChunk(l, dst)
	}
	seq := l.deviceSeq
	if l.sends > 0 && fault.On("outbox: a new deviceSeq for each retry") {
		o.deviceSeq++
		seq = o.deviceSeq
	}
	frame, err := wire.AppendDevice(dst, &wire.Result{Gen: o.gen, InstructionID: l.id, DeviceSeq: seq, Outcome: l.result})
	if err != nil {
		return dst, err
	}
	l.lastSend = o.clock()
	if l.sends == 0 {
		l.firstSend = l.lastSend
	} else {
		o.stats.ResultsResent++
	}
	l.sends++
	l.resultOut = true
	o.stats.ResultsSent++
	if fault.On("outbox: let a result go unacknowledged") {
		o.remove(l, ErrFinished)
	}
	return frame, nil
}

func (o *Outbox) speakChunk(l *Lane, dst []byte) ([]byte, error) {
	c := l.chunks.at(int(l.cursor - l.base))
	o.frame = wire.Chunk{Gen: o.gen, InstructionID: l.id, StreamSeq: l.cursor, Kind: c.kind, ExitCode: c.exitCode}
	if c.buf != nil {
		o.frame.Data = c.buf.data
	}
	if fault.On("outbox: renumber on resume") {
		o.frame.StreamSeq -= l.renumbered
	}
	if fault.On("outbox: skip a number") && l.cursor > 0 {
		o.frame.StreamSeq++
	}
	if fault.On("outbox: cut anew on resend") && l.cursor < l.sent && len(o.frame.Data) > 1 {
		o.frame.Data = o.frame.Data[:len(o.frame.Data)-1]
	}
	frame, err := wire.AppendChunk(dst, &o.frame)
	o.frame = wire.Chunk{}
	if err != nil {
		return dst, err
	}
	c.sentAt = o.clock()
	if l.cursor < l.sent {
		o.stats.ChunksResent++
	}
	o.stats.ChunksSent++
	l.cursor++
	l.sent = max(l.sent, l.cursor)
	return frame, nil
}

// chunkDue reports whether the lane has a chunk to send on this connection.
func (l *Lane) chunkDue() bool {
	if fault.On("outbox: no window") {
		return l.cursor < l.end()
	}
	return l.cursor < l.end() && l.cursor-l.base < window
}

// resultDue reports whether the lane's result goes next.
func (l *Lane) resultDue() bool {
	if fault.On("outbox: result before the chunks") {
		return l.result != nil && !l.resultOut
	}
	return l.result != nil && !l.resultOut && l.cursor == l.end()
}

// schedule gives the lane a turn if it has something to send and none yet.
func (o *Outbox) schedule(l *Lane) {
	if !o.live || l.queued || !l.chunkDue() && !l.resultDue() {
		return
	}
	o.turns.put(l)
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// turns is the line of lanes that have something to send.
type turns struct {
	first, last *Lane
}

func (t *turns) put(l *Lane) {
	l.queued, l.prev = true, t.last
	if t.last != nil {
		t.last.next = l
	} else {
		t.first = l
	}
	t.last = l
}

// take returns the lane whose turn it is, or nil.
func (t *turns) take() *Lane {
	l := t.first
	if l != nil {
		t.leave(l)
	}
	return l
}

// leave takes a lane out of the line, if it is in it.
func (t *turns) leave(l *Lane) {
	if !l.queued {
		return
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		t.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		t.last = l.prev
	}
	l.next, l.prev, l.queued = nil, nil, false
}

// shorten makes an id of any length fit for a log.
func shorten(id string) string {
	if len(id) > 64 {
		return id[:64] + "…"
	}
	return id
}
