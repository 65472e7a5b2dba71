package conformance

import (
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var timeoutRows = []Row{
	{ID: "R12-timeout", Section: "R12", Promise: "timeoutMs kills the work, and only then says timeout", run: r12Timeout},
	{ID: "R12-tree", Section: "R12, §3.3", Promise: "timeout is not said while a process of the command lives", run: r12Tree},
	{ID: "R12-spent", Section: "R12", Promise: "a timeoutMs of 0 or less has run out, or is none: the command does not run on", run: r12Spent},
	{ID: "R12-long", Section: "R12, §2.2", Promise: "a timeoutMs of any size is not cut short", run: r12Long},
	{ID: "R12-content", Section: "R12, §3.4", Promise: "a write whose content never comes whole is answered when timeoutMs ends, and leaves nothing", run: r12Content},
	{ID: "R12-stuck", Section: "R12", Promise: "an instruction that waits on the system is answered when timeoutMs ends", run: r12Stuck},
	{ID: "R12-disconnected", Section: "R12, R2", Promise: "timeoutMs runs on while disconnected", run: r12Disconnected},
}

func r12Timeout(c *Case) {
	c.begin(refserver.Config{})
	for _, kind := range commands {
		file := c.path("pid-" + string(kind))
		d := runAs(kind, "echo $$ > "+quote(file)+"; sleep 60")
		d.TimeoutMs = 2000
		a := c.ask(d)
		pid := c.pidIn(file)
		how := a.settled()
		c.dead("timeout was said", pid)
		c.failed(string(kind), how, wire.CodeTimeout)
		c.expect(how.took >= 1900*time.Millisecond && how.took < 12*time.Second, "%s with a timeoutMs of 2000: the answer came after %v", kind, how.took.Round(time.Millisecond))
	}
}

func r12Tree(c *Case) {
	c.begin(refserver.Config{})
	d := run("trap '' TERM; " + offspring + "wait")
	d.TimeoutMs = 2000
	a := c.ask(d)
	pids := c.offspring()
	how := a.settled()
	if honest(how) {
		return
	}
	c.dead("timeout was said", pids...)
	c.failed("the command", how, wire.CodeTimeout)
}

func r12Spent(c *Case) {
	c.begin(refserver.Config{})
	d := run("sleep 3; touch ran-on")
	d.TimeoutMs = -1
	how := c.do(d)
	c.failed("the command", how, wire.CodeTimeout, wire.CodeInvalid)
	c.rest(3500 * time.Millisecond)
	c.expect(!exists(c.path("ran-on")), "a command whose timeoutMs is -1 was answered, and ran on all the same")
}

func r12Long(c *Case) {
	c.begin(refserver.Config{})
	var all []*asked
	for _, ms := range []int64{1 << 31, 1<<32 + 1, 1 << 53} { // where timers of less than 64 bits wrap
		d := run("sleep 1; exit 3")
		d.TimeoutMs = min(ms, wire.MaxSafeInteger)
		all = append(all, c.ask(d))
	}
	for _, a := range all {
		c.exited(a.settled(), 3)
	}
}

func r12Disconnected(c *Case) {
	c.begin(refserver.Config{})
	d := run("echo $$ > pid; sleep 60")
	d.TimeoutMs = 3000
	a := c.ask(d)
	pid := c.pidIn(c.path("pid"))
	c.server.SetFaults(refserver.Faults{RejectHello: wire.RejectDraining})
	c.server.Drop(c.device)
	c.expect(c.eventually(12*time.Second, func() bool { return !alive(pid) }), "the command ran on while the connection was away")
	c.server.SetFaults(refserver.Faults{})
	c.failed("the command", a.settled(), wire.CodeTimeout)
}

func r12Content(c *Case) {
	c.begin(refserver.Config{ExecutionGrace: patience})
	c.holdCommit()
	path := c.write(c.path("in", "target"), "as it was")
	d := put(wire.KindWriteFile, path, noise(5000, 3))
	d.TimeoutMs = 1500
	how := c.do(d)
	c.failed("the write", how, wire.CodeTimeout)
	c.expect(how.took < 12*time.Second, "the answer to a write with a timeoutMs of 1500 came after %v", how.took.Round(time.Millisecond))
	c.expect(c.read(path) == "as it was", "a write whose content never came whole changed the file")
	c.onlyIn(c.path("in"), true, "target")
}

func r12Stuck(c *Case) {
	c.begin(refserver.Config{ExecutionGrace: patience})
	fifo := c.path("fifo")
	c.must(syscall.Mkfifo(fifo, 0o600))
	for _, kind := range []wire.Kind{wire.KindReadTextFile, wire.KindReadBinaryFile} {
		d := on(kind, fifo) // nobody will ever write into it
		d.TimeoutMs = 1500
		how := c.do(d)
		if how.By != refserver.ByResult || how.took > 12*time.Second {
			c.stop("%s of a FIFO that nobody writes to, with a timeoutMs of 1500: expected an answer soon after, got %s, after %v", kind, tell(how), how.took.Round(time.Millisecond))
		}
	}
	c.exited(c.do(run("exit 6")), 6)
}
