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

// leave asks the executor to stop and waits for its goodbye.
func (c *Case) leave() message {
	c.exec.signal(syscall.SIGTERM)
	return c.seen("a goodbye", fromDevice(wire.TypeGoodbye))
}

func r15Goodbye(c *Case) {
	c.begin(refserver.Config{})
	bye := c.leave()
	c.expect(bye.Kind == string(wire.GoodbyeShutdown) || bye.Kind == string(wire.GoodbyeUserStop), "its reason is %s", bye.Kind)
	if !c.exec.within(patience) {
		c.stop("the process does not end")
	}
	c.expect(len(c.trace.messages(fromDevice(wire.TypeGoodbye))) == 1, "more than one goodbye")
	c.expect(len(c.hellos()) == 1, "it dialled again")

	c.serve()
	c.again(1)
	c.exec.signal(syscall.SIGINT) // which not every executor ends for
	if c.exec.within(3 * time.Second) {
		c.expect(len(c.trace.messages(fromDevice(wire.TypeGoodbye))) == 2, "an interrupt ends it without a goodbye")
	}
}

func r15InFlight(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("trap '' TERM; echo $$ > pid; while :; do sleep 0.2; done"))
	pid := c.pidIn(c.path("pid"))
	c.leave()
	how := a.settled()
	c.expect(how.By == refserver.ByResult, "it was never answered: %s", tell(how))
	c.expect(c.exec.within(2*patience), "the process does not end")
	c.dead("the executor has ended", pid)
}

func r15ShortWork(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 1; echo done; exit 3"))
	pid := c.pidIn(c.path("pid"))
	c.leave()
	how := a.settled()
	c.expect(how.By == refserver.ByResult, "it was never answered: %s", tell(how))
	if _, failed := how.Outcome.(wire.Failure); failed {
		c.dead("its failure was said", pid)
	} else {
		c.exited(how, 3)
		c.expect(string(how.stdout) == "done\n", "output %q", how.stdout)
	}
	c.expect(c.exec.within(patience), "the process does not end")
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
	c.leave()
	if !c.eventually(patience, func() bool { return crossed.Load() != nil }) {
		c.stop("the suite itself: nothing was sent to cross the goodbye")
	}
	late := crossed.Load().settled()
	c.expect(late.By == refserver.ByResult, "it was never answered: %s", tell(late))
	if _, failed := late.Outcome.(wire.Failure); failed {
		c.rest(500 * time.Millisecond)
		c.expect(!exists(c.path("late")), "it failed, and ran all the same")
	}
	how := a.settled()
	c.expect(how.By == refserver.ByResult, "what ran was never answered: %s", tell(how))
	if _, failed := how.Outcome.(wire.Failure); failed {
		c.dead("its failure was said", pid)
	} else {
		c.exited(how, 0)
	}
}
