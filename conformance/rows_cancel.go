package conformance

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var cancelRows = []Row{
	{ID: "R11-killed", Section: "R11, §5.3", Promise: "cancel ends a running command within 10 s, and only then says killed", run: r11Killed},
	{ID: "R11-stubborn", Section: "R11", Promise: "killed is not said while a process of the command lives, also one that ignores TERM or has left its parent, session and environment", run: r11Stubborn},
	{ID: "R11-not-started", Section: "R11, §5.3", Promise: "not_started is said only where nothing happened", run: r11NotStarted},
	{ID: "R11-idempotent", Section: "R11", Promise: "a repeated cancel changes nothing: one terminal", run: r11Idempotent},
	{ID: "R11-finished", Section: "R11", Promise: "cancel of finished work leaves its ordinary outcome", run: r11Finished},
	{ID: "R11-replayed", Section: "R11", Promise: "a cancel that was lost with its connection is heeded when it comes again", run: r11Replayed},
	{ID: "R11-unknown", Section: "R11", Promise: "a cancel for an unknown id does no harm, and nothing is said to have been killed", run: r11Unknown},
}

// cancelled expects a cancel's own receipt.
func (c *Case) cancelled(a answer, state wire.CancelState) {
	o, ok := a.Outcome.(wire.CancelledOutcome)
	c.expect(ok && o.State == state && a.By == refserver.ByResult, `expected {"ok":true,"kind":"cancelled","state":%q}, got %s`, state, tell(a))
}

func r11Killed(c *Case) {
	c.begin(refserver.Config{})
	for _, kind := range commands {
		pidFile, childFile := c.path("pid-"+string(kind)), c.path("child-"+string(kind))
		a := c.ask(runAs(kind, "sleep 60 & echo $! > "+quote(childFile)+"; echo $$ > "+quote(pidFile)+"; wait"))
		pid, child := c.pidIn(pidFile), c.pidIn(childFile)
		at := time.Now()
		a.Cancel()
		how := a.settled()
		c.dead("killed was said", pid, child)
		c.expect(time.Since(at) < 10*time.Second, "%s: the answer to cancel took %v; 10 s is the budget", kind, time.Since(at).Round(time.Millisecond))
		c.cancelled(how, wire.CancelKilled)
	}
}

// offspring starts what neither a TERM to the command's first process nor one to its
// group ends, nor a look at its children, or for its environment: a child that ignores
// TERM, that one's child, one in a session of its own, one whose parent has ended, one
// with an empty environment, and one of which all of the last three hold. What needs a
// session has one where the system has the program for it. See Case.offspring.
const offspring = `sh -c 'trap "" TERM INT HUP; sleep 61 & echo $! > grandchild; echo $$ > child; while :; do sleep 0.2; done' & ` +
	`apart=$(command -v setsid); ` +
	`$apart sh -c 'echo $$ > session; sleep 62' & ` +
	`(sh -c 'echo $$ > orphan; exec sleep 63' &); ` +
	`env -i sh -c 'echo $$ > bare; exec sleep 64' & ` +
	`env -i $apart sh -c "($apart sh -c 'echo \$\$ > hidden; exec sleep 65' &)" & `

// offspring are the process ids of what offspring starts.
func (c *Case) offspring() []int {
	var pids []int
	for _, o := range []struct{ file, what string }{
		{"grandchild", "a child of a child"},
		{"child", "a child that ignores TERM"},
		{"session", "a child in a session of its own"},
		{"orphan", "one whose parent has ended"},
		{"bare", "a child with an empty environment"},
		{"hidden", "one whose parent has ended, in a session of its own and with an empty environment"},
	} {
		pid := c.pidIn(c.path(o.file))
		c.known[pid] = o.what
		pids = append(pids, pid)
	}
	return pids
}

// honest reports whether an executor owns to not knowing whether all is dead, which it
// may (§3.3): not every system shows it.
func honest(a answer) bool {
	f, ok := a.Outcome.(wire.Failure)
	return ok && f.Code == wire.CodeOutcomeUnknown && a.By == refserver.ByResult
}

func r11Stubborn(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("trap '' TERM INT HUP; " + offspring + "echo $$ > pid; while :; do sleep 0.2; done"))
	pids := append(c.offspring(), c.pidIn(c.path("pid")))
	a.Cancel()
	how := a.settled()
	if honest(how) {
		return
	}
	c.dead("cancelled killed was said", pids...)
	c.cancelled(how, wire.CancelKilled)
}

// holdCommit keeps back the commit of every payload.
func (c *Case) holdCommit() {
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		p, ok := f.(*wire.Payload)
		return refserver.Action{Drop: ok && p.Part == wire.PartCommit}
	}})
}

func r11NotStarted(c *Case) {
	c.begin(refserver.Config{})
	// Commands that may have begun or not: what is said of them is held against what
	// they did.
	for i := range 12 {
		mark := c.path(fmt.Sprint("began-", i))
		a := c.ask(run("touch " + quote(mark) + "; exec sleep 60"))
		c.rest(time.Duration(i) * 2 * time.Millisecond)
		a.Cancel()
		how := a.settled()
		o, ok := how.Outcome.(wire.CancelledOutcome)
		if c.expect(ok && how.By == refserver.ByResult, `expected an outcome of kind "cancelled", got %s`, tell(how)) && o.State == wire.CancelNotStarted {
			c.rest(100 * time.Millisecond)
			c.expect(!exists(mark), "not_started was said of a command that had begun")
		}
	}
	// Of content that never came whole nothing is written, whatever it is called.
	c.holdCommit()
	path := c.write(c.path("in", "target"), "as it was")
	a := c.ask(put(wire.KindWriteFile, path, noise(5000, 2)))
	c.rest(300 * time.Millisecond)
	a.Cancel()
	how := a.settled()
	_, ok := how.Outcome.(wire.CancelledOutcome)
	c.expect(ok && how.By == refserver.ByResult, `expected an outcome of kind "cancelled", got %s`, tell(how))
	c.expect(c.read(path) == "as it was", "a write that was cancelled before its content was whole changed the file")
	c.onlyIn(c.path("in"), true, "target")
}

func r11Idempotent(c *Case) {
	c.begin(refserver.Config{})
	c.server.SetFaults(refserver.Faults{Outgoing: refserver.Duplicate(wire.TypeCancel)})
	a := c.ask(run("trap 'sleep 0.3; exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done"))
	c.pidIn(c.path("pid"))
	gen := c.state().Gen
	a.Cancel()
	a.settled()
	for range 3 {
		c.inject(&wire.Cancel{Gen: gen, InstructionID: a.ID()})
	}
	c.exited(c.do(run("sleep 0.5")), 0)
	results := c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
	c.expect(len(results) == 1, "%d results went out for an instruction that was cancelled several times; expected 1", len(results))
}

func r11Finished(c *Case) {
	c.begin(refserver.Config{})
	var hold atomic.Bool
	hold.Store(true)
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		r, ok := f.(*wire.Result)
		// Lost with its connection: the server still waits while the device is done.
		if ok && r.Outcome == wire.Outcome(wire.ExecOutcome{ExitCode: 9}) && hold.CompareAndSwap(true, false) {
			return refserver.Action{Drop: true, Cut: true}
		}
		return refserver.Action{}
	}})
	a := c.ask(run("exit 9"))
	c.gone()
	a.Cancel()
	c.exited(a.settled(), 9)
}

func r11Replayed(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		_, ok := f.(*wire.Cancel)
		return refserver.Action{Drop: ok, Cut: ok}
	}})
	a.Cancel()
	c.gone()
	c.expect(alive(pid), "a cancel that never arrived ended the command")
	c.server.SetFaults(refserver.Faults{})
	how := a.settled()
	c.dead("killed was said", pid)
	c.cancelled(how, wire.CancelKilled)
}

func r11Unknown(c *Case) {
	c.begin(refserver.Config{})
	c.tolerate(refserver.UnknownIns) // it may say that nothing was started
	for range 3 {
		c.inject(&wire.Cancel{Gen: c.state().Gen, InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W"})
	}
	c.exited(c.do(run("sleep 1; exit 2")), 2)
	c.expect(c.state().Connections == 1, "a cancel for an unknown id cost the connection")
	for _, m := range c.trace.messages(about("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", fromDevice())) {
		c.expect(m.Type == string(wire.TypeResult) && m.Kind == string(wire.CancelNotStarted), "it answered cancel for an id it never had with %s %s; it may say nothing, or not_started", m.Type, m.Kind)
	}
}
