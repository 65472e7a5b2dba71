package link

import (
	"context"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

const (
	// abortLimit bounds the ending of what the drain left running.
	abortLimit = 10 * time.Second
	// deliverLimit is how long the last results may take to be acknowledged once
	// nothing runs any more.
	deliverLimit = 5 * time.Second
	// lingerAfterGoodbye is how long a connection stays open after goodbye though
	// nothing is in hand: a dispatch may already be on its way (§1.6).
	lingerAfterGoodbye = 250 * time.Millisecond
	// graceMargin is added to the drain in goodbye's graceMs, so that the server
	// waits for what the drain's end ends.
	graceMargin = abortLimit + deliverLimit
)

// departure is a link's way out after Leave.
type departure struct {
	settled  chan struct{} // closed by the drain: nothing runs any more
	overtime bool          // the drain's time was up; read after settled

	cancel    context.CancelFunc
	isSettled bool
	isLate    bool
	deadline  *time.Timer // for the last results
}

// ordered is readable once Leave was called and not yet obeyed.
func (l *Link) ordered() <-chan struct{} {
	if l.departure != nil {
		return nil
	}
	return l.leave
}

// depart begins the departure: nothing new starts, what runs may finish.
func (l *Link) depart(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	d := &departure{settled: make(chan struct{}), cancel: cancel}
	l.departure = d
	l.enter(State{Phase: Leaving, Cause: l.leaveCause()})
	work, drain := l.cfg.Work, l.cfg.Drain
	work.Leave()
	go func() {
		defer close(d.settled)
		patience, cancel := context.WithTimeout(ctx, drain)
		defer cancel()
		if work.Wait(patience) == nil || ctx.Err() != nil {
			return
		}
		d.overtime = true
		limit, cancel := context.WithTimeout(ctx, abortLimit)
		defer cancel()
		if err := work.Abort(limit); err != nil {
			l.cfg.Log.Warn("not all work could be ended", "err", err)
		}
	}()
}

// departed ends the drain, if there is one.
func (l *Link) departed() {
	d := l.departure
	if d == nil {
		return
	}
	d.cancel()
	<-d.settled
	if d.deadline != nil {
		d.deadline.Stop()
	}
}

func (l *Link) leaveCause() Cause {
	if l.reason == wire.GoodbyeUserStop {
		return CauseToldUserStop
	}
	return CauseToldShutdown
}

// mayGo reports whether a departure has nothing more to wait for.
func (l *Link) mayGo() bool {
	d := l.departure
	if d != nil && fault.On("link: goodbye without a drain") {
		return true
	}
	return d != nil && d.isSettled && (d.isLate || l.cfg.Outbox.Unacked() == 0)
}

// gone is the outcome of a departure.
func (l *Link) gone() outcome {
	if l.departure.overtime || l.departure.isLate {
		return outcome{kind: final, cause: CauseDrainOver}
	}
	return outcome{kind: final, cause: CauseDrained}
}

// settles is readable when the drain is through and that was not yet noted.
func (d *departure) settles() <-chan struct{} {
	if d == nil || d.isSettled {
		return nil
	}
	return d.settled
}

func (d *departure) settle() {
	d.isSettled = true
	d.deadline = time.NewTimer(deliverLimit)
}

// late is readable when the last results have had their time.
func (d *departure) late() <-chan time.Time {
	if d == nil || d.deadline == nil {
		return nil
	}
	return d.deadline.C
}

func (d *departure) giveUp() { d.isLate = true }

func (l *Link) goodbye(gen wire.Gen, reason wire.GoodbyeReason) *wire.Goodbye {
	g := &wire.Goodbye{Gen: gen, Reason: reason}
	if reason != wire.GoodbyeSleep {
		ms := (l.cfg.Drain + graceMargin).Milliseconds()
		g.GraceMs = &ms
	}
	return g
}
