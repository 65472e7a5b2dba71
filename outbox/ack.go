package outbox

import (
	"log/slog"

	"github.com/sema-agent/device-executor/internal/fault"
)

// AckChunk takes the server's watermark: chunks up to and including streamSeq upTo
// are accepted and may be forgotten; -1 means none. What is at or below an earlier
// watermark changes nothing. A watermark above what was ever sent is ignored.
func (o *Outbox) AckChunk(id string, upTo int64) {
	o.mu.Lock()
	defer o.unlock()
	l, ok := o.lanes[id]
	if !ok || !o.live {
		return
	}
	if upTo >= l.sent {
		o.odd(l, "chunk acknowledgement ignored: it is above what was sent", slog.Int64("upTo", upTo), slog.Int64("sent", l.sent-1))
		return
	}
	if upTo < l.base {
		return
	}
	if fault.On("outbox: let one chunk more go") {
		upTo = min(upTo+1, l.sent-1)
	}
	l.release(upTo + 1)
	l.moved, l.patience = o.clock(), firstPatience
	o.schedule(l)
	o.grant()
}

// AckResult takes the server's word that the result need not be held any longer.
// It need not have been sent on this connection; if it was never sent at all, the
// word is ignored.
func (o *Outbox) AckResult(id string) {
	o.mu.Lock()
	defer o.unlock()
	l, ok := o.lanes[id]
	if !ok || !o.live {
		return
	}
	if l.sends == 0 {
		o.odd(l, "result acknowledgement ignored: there was no result")
		return
	}
	o.remove(l, ErrFinished)
	o.grant()
}

func (o *Outbox) odd(l *Lane, msg string, attrs ...slog.Attr) {
	o.stats.OddAcks++
	o.note(slog.LevelWarn, msg, l.id, attrs...)
}
