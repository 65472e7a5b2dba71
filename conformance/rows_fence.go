package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var fenceRows = []Row{
	{ID: "R10-fence", Section: "R10, §1.5", Promise: "what is not listed is dead when generationAck comes", run: r10Fence},
	{ID: "R10-crash", Section: "R10, §6.10", Promise: "what a killed executor left running is dead when its successor sends generationAck", run: r10Crash},
	{ID: "R10-one-instance", Section: "R10, §6.10", Promise: "a second process of the same identity does not connect beside the first", run: r10OneInstance},
}

// onAck calls what at the very moment the next generationAck arrives.
func (c *Case) onAck(what func()) {
	var once sync.Once
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		if _, ok := f.(*wire.GenerationAck); ok {
			once.Do(what)
		}
		return refserver.Action{}
	}})
}

func r10Fence(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("trap '' TERM; " + offspring + "echo $$ > pid; while :; do sleep 0.2; done"))
	pids := append(c.offspring(), c.pidIn(c.path("pid")))
	var left atomic.Value
	c.onAck(func() { left.Store(slices.DeleteFunc(pids, func(pid int) bool { return !alive(pid) })) })
	n := c.state().Connections
	c.server.Restart()
	a.settled()
	c.again(n)
	for _, pid := range left.Load().([]int) {
		c.fail("process %s of a command that pendingInstructions did not list was alive when generationAck came", c.processName(pid))
	}
}

func r10Crash(c *Case) {
	c.begin(refserver.Config{})
	c.ask(run("echo $$ > pid; sleep 50"))
	pid := c.pidIn(c.path("pid"))
	c.exec.kill()
	c.gone()
	var aliveThen, came atomic.Bool
	c.onAck(func() { aliveThen.Store(alive(pid)); came.Store(true) })
	c.serve()
	c.active()
	c.expect(came.Load() && !aliveThen.Load(), "process %d of a command of the killed executor was alive when its successor sent generationAck", pid)
}

func r10OneInstance(c *Case) {
	c.begin(refserver.Config{})
	first := c.exec
	a := c.ask(run("sleep 4; echo undisturbed"))
	second := c.serve()
	c.rest(3 * time.Second)
	c.expect(len(c.hellos()) == 1, "%d hellos, expected 1: a second process of the same identity connected beside the first", len(c.hellos()))
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == "undisturbed\n", "stdout is %q, expected \"undisturbed\\n\"", how.stdout)
	c.expect(!first.ended(), "the first process ended when a second was started")
	second.finish()
}
