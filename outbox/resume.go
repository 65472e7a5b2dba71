package outbox

import (
	"log/slog"
	"slices"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// Resume begins a connection of generation gen with what its helloAck said (§1.5):
// instructions not listed in pending are dropped, listed ones go on after their
// watermark (an absent one, like -1, says nothing), results not yet acknowledged are
// due again. From now on frames flow.
func (o *Outbox) Resume(gen wire.Gen, pending []string, watermarks map[string]int64) {
	o.mu.Lock()
	defer o.unlock()
	if o.gen == "" || !fault.On("outbox: stamp an old generation") {
		o.gen = gen
	}
	o.live = true
	o.turns = turns{}
	listed := make(map[string]bool, len(pending))
	for _, id := range pending {
		listed[id] = true
	}
	now := o.clock()
	for _, l := range slices.Clone(o.order) {
		l.queued, l.next, l.prev = false, nil, nil
		if !listed[l.id] && !fault.On("outbox: forget the fence") || fault.On("outbox: forget what is listed") {
			o.stats.Dropped++
			o.remove(l, ErrDropped)
			continue
		}
		if l.spent(now) {
			o.giveUp(l, now, neverAcknowledged)
			continue
		}
		if upTo, ok := watermarks[l.id]; ok {
			o.moveTo(l, upTo)
		}
		if fault.On("outbox: renumber on resume") {
			l.renumbered = l.base
		}
		l.cursor = l.base
		if fault.On("outbox: lose what was sent") {
			l.cursor = max(l.base, l.sent)
		}
		l.moved, l.patience = now, firstPatience
		l.resultOut, l.silence = l.sends >= mostSends, firstSilence
		o.schedule(l)
	}
	o.grant()
}

// moveTo frees what the watermark of a helloAck says the server has.
func (o *Outbox) moveTo(l *Lane, upTo int64) {
	switch {
	case upTo >= l.sent && upTo >= 0:
		o.odd(l, "watermark ignored: it is above what was sent", slog.Int64("upTo", upTo), slog.Int64("sent", l.sent-1))
	case upTo+1 < l.base:
		// What the server once acknowledged is gone; it can only give up the
		// instruction, as it would over any gap.
		o.odd(l, "watermark ignored: it takes back what was acknowledged", slog.Int64("upTo", upTo), slog.Int64("acknowledged", l.base-1))
	default:
		l.release(upTo + 1)
	}
}

// Suspend ends the connection: nothing is handed out until the next Resume, while
// lanes go on taking output up to their bounds.
func (o *Outbox) Suspend() {
	o.mu.Lock()
	defer o.unlock()
	o.live = false
	for o.turns.take() != nil {
	}
}
