package simulation

import (
	"errors"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// farewell is a final bye that the executor's present life was sent.
type farewell struct {
	reason wire.ByeReason
	// plain: nothing keeps it from being heard, so no connection may follow it.
	plain bool
}

// ends is what the executor has to end with.
func (f farewell) ends() error {
	if f.reason == wire.ByeRevoked {
		return link.ErrRevoked
	}
	return link.ErrSuperseded
}

// endPatienceOfAll is how long an executor may take over its end, with commands that
// cannot be ended among its work.
const endPatienceOfAll = 30 * time.Second

// dismiss says a final bye in the middle of whatever goes on. A server that is brusque
// does not wait for the executor to take it, so that what is being written fails first.
// Nothing about the device is kept: the next executor is welcome.
func (w *World) dismiss(e Event) {
	f := farewell{reason: wire.ByeSuperseded, plain: w.net.plain() && w.asleep.Load() == 0}
	by := refserver.BySuperseded
	if e.N&1 == 1 {
		f.reason, by = wire.ByeRevoked, refserver.ByRevoked
	}
	brusque := e.N&2 == 2
	w.order(func(f *faults) { f.brusque = brusque })
	if !w.judge.dismisses(f, w.server.State(w.device)) {
		return // there is nobody to hear it
	}
	w.server.Bye(w.device, f.reason)
	w.server.WriteOff(w.device, by)
	w.after(endPatienceOfAll, func() { w.order(func(f *faults) { f.brusque = false }) })
	limit := time.NewTimer(endPatienceOfAll)
	defer limit.Stop()
	select {
	case err := <-w.ended:
		w.tookLeave(err, f)
		time.Sleep(e.For / 4)
		w.start()
	case <-limit.C:
		if w.judge.plainly() {
			w.judge.Fail("the executor goes on %v after a bye %s", endPatienceOfAll, f.reason)
		}
	}
}

// tookLeave checks what an executor ended with that was sent a final bye.
func (w *World) tookLeave(err error, f farewell) {
	if !errors.Is(err, f.ends()) {
		w.judge.Fail("a bye %s, and the executor ended with %v", f.reason, err)
	}
	w.judge.Note("executor ended")
	w.x = nil
}
