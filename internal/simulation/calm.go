package simulation

import (
	"context"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/wire"
)

// calm ends all faults, and sees whether everything comes right, and the plain cases
// of what the faults mixed up.
func (w *World) calm() {
	w.mu.Lock()
	all := w.later
	w.later = nil
	w.mu.Unlock()
	for _, l := range all {
		if l.timer.Stop() {
			l.end()
		}
	}
	w.net.heal()
	w.net.open().each(3, func(l *lane) { l.budget = -1 })
	w.net.open().each(3, (*lane).flow)
	w.judge.Note("calm")
	if w.x == nil {
		return
	}
	// A connection that swallows everything is noticed, or it is none.
	time.Sleep(4*w.s.Config.Heartbeat + 3*time.Second)
	w.activeAgain()
	w.judge.calms()
	for i, ask := range wholesome(w.s.Seed) {
		w.dispatch(ask, 1000+i, true)
	}
	w.calls.Wait()
	if w.hasEnded() {
		return
	}
	w.emptied()
	w.endsOne()
	choice(w, 1, w.losesOne, w.missesOne)()
	w.leaves()
}

func (w *World) activeAgain() {
	limit, cancel := context.WithTimeout(w.ctx, 5*time.Minute)
	defer cancel()
	if err := w.server.WaitActive(limit, w.device); err != nil {
		w.judge.Fail("not active again: %v", err)
	}
}

// oblivion is how long the executor may keep what a server has settled, that says
// nothing more of it: ten minutes by a clock that may have been turned back and forth.
const oblivion = 11*time.Minute + 2*mostSkew

// emptied waits until the executor has let go of all that the server has: nothing may be
// held for ever.
func (w *World) emptied() {
	limit := oblivion
	if slack := w.ground.slack(); slack > 0 {
		limit = slack // of what takes longer, nothing happens in real time
	}
	var held executor.Held
	if !w.becomes(limit, func() bool {
		held = w.x.Held()
		return held.Unacknowledged == 0 && held.Stuck == 0 && (held.Running == 0 || w.hasUndead())
	}) {
		w.judge.Fail("everything is settled, and the executor still holds %+v", held)
	}
}

// wholesome is the work that must succeed once all is calm.
func wholesome(seed uint64) []*Ask {
	return []*Ask{
		{Kind: wire.KindExec, Timeout: time.Minute, Program: Program{Seed: seed + 1, Exit: 3, Steps: []Step{{Stream: 1, Bytes: 20_000}, {After: time.Millisecond, Stream: 2, Bytes: 10}}}},
		{Kind: wire.KindWriteFile, Timeout: time.Minute, Size: 5000, Program: Program{Seed: seed + 2}},
		{Kind: wire.KindReadBinaryFile, Timeout: time.Minute, Size: 66_000, Program: Program{Seed: seed + 3}},
		{Kind: wire.KindExecStream, Timeout: time.Minute, Program: Program{Seed: seed + 4}},
	}
}

// choice is one of two by the seed; different numbers choose independently.
func choice[T any](w *World, number int, a, b T) T {
	if w.s.Seed>>number&1 == 0 {
		return a
	}
	return b
}

// alone gives the only instruction there is, and tells how long it takes to settle;
// meanwhile is called once the command has said something.
func (w *World) alone(what string, ask *Ask, limit time.Duration, meanwhile func()) {
	w.dispatch(ask, 0, true)
	if !w.becomes(time.Minute, func() bool { return w.judge.hasHeard(ask) }) {
		w.judge.Fail("%s: the command never said anything", what)
	}
	began := time.Now()
	meanwhile()
	w.settles(what, began, limit)
}

// settles waits for all instructions.
func (w *World) settles(what string, began time.Time, limit time.Duration) {
	w.calls.Wait()
	if took := time.Since(began); took > limit+w.ground.slack() {
		w.judge.Fail("%s: settled after %v, which may take %v", what, took, limit)
	}
}

// fails is true of failures with a code.
func fails(code wire.ErrorCode) func(wire.Outcome) bool {
	return func(o wire.Outcome) bool { f, ok := o.(wire.Failure); return ok && f.Code == code }
}

// becomes polls until a condition holds.
func (w *World) becomes(within time.Duration, holds func() bool) bool {
	for end := time.Now().Add(within); !holds(); time.Sleep(7*time.Millisecond + 1) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// speaker says something at once, and again after a while, if it does not go on for
// ever.
func (w *World) speaker(number uint64, lasts time.Duration) *Ask {
	a := &Ask{Kind: wire.KindExec, Timeout: time.Minute, Program: Program{Seed: w.s.Seed + number, Exit: 7,
		Term: choice(w, 7, Dies, Ignores), Steps: []Step{{After: 20 * time.Millisecond, Stream: 1, Bytes: 500}}}}
	if lasts == 0 {
		a.Program.Loop = true
		a.Program.Steps[0].After = 350 * time.Millisecond
		return a
	}
	a.Program.Steps = append(a.Program.Steps, Step{After: lasts, Stream: 1, Bytes: 3000})
	return a
}

// How long it may take to end a command that has to be killed, and to come back to
// a server that is there; and how long a connection swallows what it is given before
// it is lost.
const (
	lost         = 900 * time.Millisecond
	endPatience  = 2500 * time.Millisecond
	backPatience = 1500 * time.Millisecond
)

// endsOne has a command ended by a cancel, or by its timeout.
func (w *World) endsOne() {
	ask := w.speaker(5, 0)
	if choice(w, 0, true, false) {
		ask.Cancel = []time.Duration{800 * time.Millisecond}
		ask.outcome = func(o wire.Outcome) bool { return o == wire.Outcome(wire.CancelledOutcome{State: wire.CancelKilled}) }
	} else {
		ask.Timeout = 800 * time.Millisecond
		ask.outcome = fails(wire.CodeTimeout)
	}
	w.alone("a command that is ended", ask, 800*time.Millisecond+endPatience, func() {})
}

// losesOne loses the connection, and before that some of what the executor says: the
// result too, if the command is over by then.
func (w *World) losesOne() {
	p := w.net.open()
	if p == nil {
		return
	}
	lasts := choice(w, 2, 300*time.Millisecond, 4*time.Second)
	w.alone("a command whose connection is lost", w.speaker(6, lasts), lasts+lost+backPatience, func() {
		p.each(1, func(l *lane) { l.hole = true })
		time.Sleep(lost)
		p.reset()
		w.activeAgain()
	})
}

// missesOne loses an instruction on its way, or some of a write's content.
func (w *World) missesOne() {
	p := w.net.open()
	if p == nil {
		return
	}
	ask := w.speaker(6, time.Second)
	time.Sleep(time.Millisecond + 13) // what is still being said is said at the old pace
	if choice(w, 2, true, false) {
		p.each(2, func(l *lane) { l.hole = true })
	} else {
		// More than arrives before the connection is lost.
		ask = &Ask{Kind: wire.KindWriteFile, Timeout: time.Minute, Size: 40_000, Program: Program{Seed: w.s.Seed}}
		w.net.set(func(n *network) { n.perByte = 40 * time.Microsecond })
	}
	ask.outcome = fails(wire.CodeTargetUnavailable)
	w.dispatch(ask, 0, true)
	time.Sleep(lost)
	p.reset()
	w.net.heal()
	w.activeAgain()
	w.settles("an instruction that never arrived", time.Now(), backPatience)
	if _, times := w.ground.written(w.target(0)); times > 0 {
		w.judge.Fail("content that never arrived was written")
	}
}

// leaves has the executor leave while a command runs, which is over before the drain
// is, or has to be ended. What the server sends after the goodbye is answered.
func (w *World) leaves() {
	ask, limit := w.speaker(7, drain/3), drain/2
	if choice(w, 3, true, false) {
		ask, limit = w.speaker(7, 0), drain+endPatience
		ask.outcome = fails(wire.CodeAborted)
	}
	w.alone("a command whose executor leaves", ask, limit, func() {
		w.judge.leaves()
		w.x.Stop(wire.GoodbyeUserStop)
		if !w.becomes(time.Minute, func() bool { return w.server.State(w.device).Goodbye == wire.GoodbyeUserStop }) {
			w.judge.Fail("there was no goodbye")
		}
		if w.s.Config.MaxInflight > 1 {
			late := w.speaker(8, time.Second)
			late.Straggler = true
			late.outcome = fails(wire.CodeTargetUnavailable)
			w.dispatch(late, 0, true)
		}
	})
	w.await(time.Minute)
}
