package outbox

import (
	"log/slog"
	"slices"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
)

// How often things are sent again (R5, R7).
const (
	firstPatience = 10 * time.Second  // without progress, before chunks go again; doubles
	mostPatience  = 60 * time.Second  //
	firstSilence  = 15 * time.Second  // after a result, before it goes again; doubles
	mostSilence   = 120 * time.Second //
	mostSends     = 10                // of one result, in all
	mostAge       = 10 * time.Minute  // of a result, from its first sending or in vain before it
)

const neverAcknowledged = "result given up: it was never acknowledged"

// Tick makes due again what was not acknowledged in time, and gives up what was
// sent often or long enough. Call it about once a second while there is a
// connection; Resume catches up on what an absence made of age.
func (o *Outbox) Tick(now time.Time) {
	o.mu.Lock()
	defer o.unlock()
	clock := now.Sub(o.start)
	for _, l := range slices.Clone(o.order) {
		switch {
		case l.spent(clock):
			o.giveUp(l, clock, neverAcknowledged)
			continue
		case o.live && l.unheard(clock):
			o.giveUp(l, clock, "result given up unsent: the output before it was never acknowledged")
			continue
		}
		if !o.live || fault.On("outbox: never send again") {
			continue
		}
		if l.cursor > l.base && clock-max(l.moved, l.chunks.at(0).sentAt) >= l.patience {
			l.cursor = l.base
			l.patience = min(2*l.patience, mostPatience)
		}
		if l.resultOut && l.sends < mostSends && clock-max(l.moved, l.lastSend) >= l.silence {
			l.resultOut = false
			l.silence = min(2*l.silence, mostSilence)
		}
		o.schedule(l)
	}
	o.grant()
	o.noteMore(clock)
}

// spent reports whether a result was sent often or long enough. After the last
// sending its acknowledgement has as long as after the first.
func (l *Lane) spent(now time.Duration) bool {
	if l.sends == 0 || fault.On("outbox: never give up") {
		return false
	}
	return now-l.firstSend >= mostAge || l.sends >= mostSends && now-l.lastSend >= firstSilence
}

// unheard reports whether a result waits behind output that no watermark has moved
// past for too long: a server that has settled the instruction takes its chunks
// without a word (§2.4).
func (l *Lane) unheard(now time.Duration) bool {
	if fault.On("outbox: wait for output's acknowledgement for ever") {
		return false
	}
	return l.result != nil && l.sends == 0 && now-max(l.finished, l.moved) >= mostAge
}

// giveUp drops an instruction whose result is not acknowledged, and says why. It is
// not run again, whatever the server says of it later.
func (o *Outbox) giveUp(l *Lane, now time.Duration, why string, attrs ...slog.Attr) {
	o.stats.GivenUp++
	attrs = append(attrs, slog.Int("sends", l.sends))
	if l.sends > 0 {
		attrs = append(attrs, slog.Duration("age", now-l.firstSend))
	}
	o.note(slog.LevelWarn, why, l.id, attrs...)
	o.remove(l, ErrFinished)
}

// bound gives up instructions, the one finished longest ago first, while more wait
// for their acknowledgement, or more bytes of results, than are held.
func (o *Outbox) bound() {
	for {
		why, kept := "result given up: more results than are kept wait for their acknowledgement", o.held
		if o.stats.Results <= o.held {
			if o.stats.Results <= 1 || o.stats.ResultBytes <= o.totalBytes {
				return
			}
			why, kept = "result given up: more bytes of results than are kept wait for their acknowledgement", o.totalBytes
		}
		var oldest *Lane
		for _, l := range o.order {
			if l.result != nil && (oldest == nil || l.deviceSeq < oldest.deviceSeq) {
				oldest = l
			}
		}
		o.giveUp(oldest, o.clock(), why, slog.Int("kept", kept))
	}
}
