package simulation

import (
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// The most that the wall clock may be off by Clock, either way: such jumps stay below the
// time after which the executor gives an unacknowledged result up. Age is beyond it.
const mostSkew = 4 * time.Minute

// apply makes an event happen.
func (w *World) apply(e Event) {
	switch e.Do {
	case DoAsk:
		w.asked++
		w.dispatch(e.Ask, w.asked, false)

	case Cut:
		w.net.open().cutAfter(e.Way, max(e.N, 1))
	case Freeze:
		w.net.open().each(e.Way, func(l *lane) { l.hole = true })
	case Stall:
		p := w.net.open()
		p.each(e.Way, func(l *lane) { l.stalled = true })
		w.after(e.For, func() { p.each(e.Way, (*lane).flow) })
	case Slow:
		w.during(e.For, func(n *network) { n.perByte = time.Duration(e.N) }, func(n *network) { n.perByte = 1 })
	case Delay:
		w.during(e.For, func(n *network) { n.latency = time.Duration(e.N) }, func(n *network) { n.latency = time.Millisecond })
	case Refuse:
		w.during(e.For, func(n *network) { n.refuse = true }, func(n *network) { n.refuse = false })
		w.net.open().reset()
	case Deafen:
		w.during(e.For, func(n *network) { n.deaf = true }, func(n *network) { n.deaf = false })
		w.net.open().reset()

	case Restart:
		w.restart()
	case Drain:
		w.server.Drain()
		w.after(e.For, w.restart)
	case Bye:
		reason := wire.ByeDraining
		if e.N%2 == 1 {
			reason = "maintenance"
		}
		w.server.Bye(w.device, reason)
	case Reject:
		code := []wire.HelloRejectCode{wire.RejectDraining, wire.RejectAlreadyConnected, wire.RejectAuthFailed}[e.N]
		w.orderDuring(e.For, func(f *faults) { f.RejectHello = code }, func(f *faults) { f.RejectHello = "" })
	case NoHello:
		w.orderDuring(e.For, func(f *faults) { f.NoHelloAnswer = true }, func(f *faults) { f.NoHelloAnswer = false })
	case NoWelcome:
		w.orderDuring(e.For, func(f *faults) { f.NoChallenge = true }, func(f *faults) { f.NoChallenge = false })
	case LateHello:
		w.orderDuring(e.For, func(f *faults) { f.HelloDelay = time.Duration(e.N) }, func(f *faults) { f.HelloDelay = 0 })
	case Repeat:
		w.orderDuring(e.For, func(f *faults) { f.repeat = 1 }, func(f *faults) { f.repeat = 0 })
	case Withhold:
		w.orderDuring(e.For, func(f *faults) { f.withhold = e.N }, func(f *faults) { f.withhold = 0 })
	case Inject:
		w.inject(e.N)

	case Settle:
		w.order(func(f *faults) { f.withhold = 1 })
		w.after(e.For, func() {
			w.server.WriteOff(w.device, refserver.ByCeiling)
			w.order(func(f *faults) { f.withhold = 0 })
		})
	case Unlist:
		w.order(func(f *faults) { f.unlist = true })
		w.net.open().reset()
		w.after(e.For, func() {
			w.order(func(f *faults) { f.unlist = false })
			w.net.open().reset()
		})
	case Dismiss:
		w.dismiss(e)
	case Age:
		p := w.net.open()
		p.each(1, func(l *lane) { l.hole = true })
		w.after(e.For, func() {
			p.reset()
			w.judge.ages()
			w.mu.Lock()
			w.aged += time.Duration(e.N)
			w.mu.Unlock()
		})

	case Clock:
		w.mu.Lock()
		w.skew = min(max(w.skew+time.Duration(e.N), -mostSkew), mostSkew)
		w.mu.Unlock()
	case Sleep:
		w.mu.Lock()
		sleeps := w.sleeps
		w.mu.Unlock()
		w.asleep.Add(1)
		sleeps <- true
		w.after(e.For, func() { sleeps <- false; w.asleep.Add(-1) })
	case Crash:
		// What a process that is killed has in hand never leaves it.
		w.net.open().reset()
		w.ground.settle()
		w.x.StopNow()
		w.again(e.For)
	case Stop:
		w.judge.leaves()
		w.x.Stop(wire.GoodbyeShutdown)
		w.again(e.For)
	}
}

// restart puts a new replica in the place of the server. One that dies says nothing
// more.
func (w *World) restart() {
	w.net.open().reset()
	w.server.Restart()
}

// again waits for the executor's end and starts the next one.
func (w *World) again(pause time.Duration) {
	w.await(time.Minute)
	time.Sleep(pause / 4)
	w.start()
}

func (w *World) during(d time.Duration, begin, end func(*network)) {
	w.net.set(begin)
	w.after(d, func() { w.net.set(end) })
}

func (w *World) orderDuring(d time.Duration, begin, end func(*faults)) {
	w.order(begin)
	w.after(d, func() { w.order(end) })
}
