package conformance

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var leaveRows = []Row{
	{ID: "R15-goodbye", Section: "R15, §1.6", Promise: "a goodbye goes out before the process ends, and it ends by itself", run: r15Goodbye},
	{ID: "R15-in-flight", Section: "R15, §1.6", Promise: "work in flight at goodbye is finished or failed explicitly, and nothing of it lives on", run: r15InFlight},
	{ID: "R15-straggler", Section: "§1.6, §7", Promise: "an instruction that comes after goodbye is answered", run: r15Straggler},
	{ID: "R15-short-work", Section: "R15", Promise: "short work in flight is finished whole, or failed explicitly and ended", run: r15ShortWork},
}

// leave asks the executor to stop and waits for its goodbye, or for its end. Whether a
// goodbye comes is R15-goodbye's to judge: other rows go on without.
func (c *Case) leave() (goodbye message, came bool) {
	c.exec.signal(syscall.SIGTERM)
	byes := func() []message { return c.trace.messages(fromDevice(wire.TypeGoodbye)) }
	c.eventually(patience, func() bool { return len(byes()) > 0 || c.exec.ended() })
	if c.exec.ended() { // what it sent last may be on its way
		c.eventually(time.Second, func() bool { return len(byes()) > 0 || !c.state().Connected })
	}
	if got := byes(); len(got) > 0 {
		return got[0], true
	}
	return message{}, false
}

// depart asks the executor to stop and waits for its end. How it stops is for other
// rows to judge.
func (c *Case) depart() {
	c.leave()
	c.exec.within(patience)
}

func r15Goodbye(c *Case) {
	c.begin(refserver.Config{})
	bye, came := c.leave()
	switch {
	case !came && c.exec.ended():
		c.stop("after SIGTERM it ended without sending a goodbye, with code %d", c.exec.code())
	case !came:
		c.stop("after SIGTERM it sent no goodbye within %v, and still runs", patience)
	}
	c.expect(bye.Kind == string(wire.GoodbyeShutdown) || bye.Kind == string(wire.GoodbyeUserStop), "the goodbye's reason is %s; expected shutdown or user_stop after SIGTERM", bye.Kind)
	if !c.exec.within(patience) {
		c.stop("20 s after its goodbye the process still runs")
	}
	c.expect(len(c.trace.messages(fromDevice(wire.TypeGoodbye))) == 1, "more than one goodbye went out")
	c.expect(len(c.hellos()) == 1, "it connected again after its goodbye")

	c.serve()
	c.again(1)
	c.exec.signal(syscall.SIGINT) // which not every executor ends for
	if c.exec.within(3 * time.Second) {
		c.expect(len(c.trace.messages(fromDevice(wire.TypeGoodbye))) == 2, "SIGINT ends it without a goodbye")
	}
}

func r15InFlight(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("trap '' TERM; echo $$ > pid; while :; do sleep 0.2; done"))
	pid := c.pidIn(c.path("pid"))
	c.leave()
	how := a.settled()
	c.expect(how.By == refserver.ByResult, "expected an answer of the executor's own, got %s", tell(how))
	c.expect(c.exec.within(2*patience), "40 s after SIGTERM the process still runs")
	c.dead("the executor has ended", pid)
}

func r15ShortWork(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 1; echo done; exit 3"))
	pid := c.pidIn(c.path("pid"))
	c.leave()
	how := a.settled()
	c.expect(how.By == refserver.ByResult, "expected an answer of the executor's own, got %s", tell(how))
	if _, failed := how.Outcome.(wire.Failure); failed {
		c.dead("its failure was said", pid)
	} else {
		c.exited(how, 3)
		c.expect(string(how.stdout) == "done\n", "stdout is %q, expected \"done\\n\"", how.stdout)
	}
	c.expect(c.exec.within(patience), "20 s after the answer the process still runs")
}

func r15Straggler(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 3"))
	pid := c.pidIn(c.path("pid"))
	// On its way as the goodbye arrives, so that it is there before the answers are
	// acknowledged without which the executor does not leave.
	d := run("echo late; touch late")
	d.Straggler = true
	var crossed atomic.Pointer[asked]
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		if _, ok := f.(*wire.Goodbye); ok {
			if late, err := c.dispatch(d); err == nil {
				crossed.CompareAndSwap(nil, late)
			}
		}
		return refserver.Action{}
	}})
	if _, came := c.leave(); !came {
		c.skip("no goodbye came, so no instruction could cross one; see R15-goodbye")
	}
	if !c.eventually(patience, func() bool { return crossed.Load() != nil }) {
		c.stop("the suite itself: nothing was sent to cross the goodbye")
	}
	late := crossed.Load().settled()
	c.expect(late.By == refserver.ByResult, "an instruction that came after goodbye: expected an answer, got %s", tell(late))
	if _, failed := late.Outcome.(wire.Failure); failed {
		c.rest(500 * time.Millisecond)
		c.expect(!exists(c.path("late")), "an instruction that came after goodbye was answered with a failure, and ran all the same")
	}
	how := a.settled()
	c.expect(how.By == refserver.ByResult, "what ran at the goodbye: expected an answer, got %s", tell(how))
	if _, failed := how.Outcome.(wire.Failure); failed {
		c.dead("its failure was said", pid)
	} else {
		c.exited(how, 0)
	}
}
