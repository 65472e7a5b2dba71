package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var resumeRows = []Row{
	{ID: "R2-keeps-running", Section: "R2, §1.5", Promise: "listed work keeps running over a reconnect of the same epoch", run: r2KeepsRunning},
	{ID: "R2-from-watermark", Section: "R2, R7", Promise: "after a reconnect chunks go on right above the watermark", run: r2FromWatermark},
	{ID: "R2-unlisted", Section: "R2, §1.5", Promise: "work that is not listed is ended before generationAck, and nothing is sent for it", run: r2Unlisted},
	{ID: "R2-unlisted-result", Section: "R2, §5.4", Promise: "a result that is not listed is dropped", run: r2UnlistedResult},
	{ID: "R3-new-epoch", Section: "R3", Promise: "a new process has a new epoch and resumes nothing", run: r3NewEpoch},
	{ID: "R3-same-epoch", Section: "R3, §2.2", Promise: "the same process keeps its epoch over reconnects", run: r3SameEpoch},
	{ID: "R4-grace", Section: "R4", Promise: "after the reconnect grace the work is gone from the list, and ended", run: r4Grace},
}

// counting writes a line every 20 ms, n times.
func counting(n int) string {
	return fmt.Sprintf("echo $$ > pid; i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.02; done", n)
}

// counted is what counting writes.
func counted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func r2KeepsRunning(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	a := c.ask(run("echo x >> " + quote(mark) + "; " + counting(150)))
	pid := c.pidIn(c.path("pid"))
	c.server.Drop(c.device)
	c.gone()
	c.expect(alive(pid), "the command was ended as the connection dropped")
	c.again(1)
	c.expect(alive(pid), "the command was ended by the reconnect, though pendingInstructions lists it")
	how := a.settled()
	c.exited(how, 0)
	c.expect(c.marks(mark) == 1, "the command ran %d times; expected once", c.marks(mark))
	c.whole(how, counted(150), "")
}

func r2FromWatermark(c *Case) {
	c.begin(refserver.Config{})
	c.loseChunks(10) // so that more was sent than the server has
	// At once, so that later chunks wait while earlier ones are acknowledged.
	a := c.ask(live("head -c 2000000 /dev/zero; " + counting(100)))
	c.gone()
	mark := a.Watermark()
	c.again(1)
	c.exited(a.settled(), 0)
	resumed := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice(wire.TypeChunk))))
	if c.expect(len(resumed) > 0, "no chunks came after the reconnect, though some were lost with the connection") {
		ack := c.trace.messages(onConn(c.conn(), fromDevice(wire.TypeGenerationAck)))[0]
		c.expect(resumed[0].at.Sub(ack.at) < 5*time.Second, "the first chunk came %v after generationAck; expected at once", resumed[0].at.Sub(ack.at).Round(time.Millisecond))
		c.expect(resumed[0].Seq == mark+1, "chunkWatermarks has %d, and the first chunk after the reconnect has streamSeq %d; expected the next one", mark, resumed[0].Seq)
	}
}

func r2Unlisted(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; while :; do echo tick; sleep 0.05; done"))
	pid := c.pidIn(c.path("pid"))
	n := c.state().Connections
	c.server.Restart() // its memory is empty: nothing will be listed
	a.settled()
	c.again(n)
	c.dead("the executor is active again", pid)
	c.rest(time.Second)
	late := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice())))
	c.expect(len(late) == 0, "%d frames for work that pendingInstructions does not list, after the reconnect", len(late))
	for _, m := range c.trace.messages(onConn(c.conn(), fromDevice(wire.TypeHeartbeat))) {
		c.expect(!slices.Contains(m.beat.Inflight, a.ID()), "a heartbeat names work that pendingInstructions does not list")
	}
}

func r2UnlistedResult(c *Case) {
	c.begin(refserver.Config{})
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		_, result := f.(*wire.Result)
		return refserver.Action{Drop: result}
	}})
	a := c.ask(run("echo x"))
	c.seen("the result", about(a.ID(), fromDevice(wire.TypeResult)))
	c.server.SetFaults(refserver.Faults{})
	n := c.state().Connections
	c.server.Restart()
	c.again(n)
	c.exited(c.do(run("sleep 1")), 0)
	late := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice())))
	c.expect(len(late) == 0, "%d frames for an instruction that is not listed", len(late))
}

func r3NewEpoch(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	a := c.ask(run("echo x >> " + quote(mark) + "; echo $$ > pid; sleep 30"))
	c.pidIn(c.path("pid"))
	c.exec.kill()
	c.gone()
	c.serve()
	c.active()
	c.expect(a.settled().By == refserver.ByNewEpoch, "a new process has to come with a new epoch, which gives up the work in flight; got %s", tell(a.settled()))
	c.exited(c.do(run("sleep 0.5")), 0)
	hellos := c.hellos()
	c.expect(hellos[0].hello.Epoch != hellos[len(hellos)-1].hello.Epoch, "the new process has the epoch of the one before")
	late := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice())))
	c.expect(len(late) == 0, "%d frames for work of an earlier process", len(late))
	c.expect(c.marks(mark) == 1, "the command ran %d times; expected once", c.marks(mark))
}

func r3SameEpoch(c *Case) {
	c.begin(refserver.Config{})
	for range 3 {
		c.drop()
	}
	for _, h := range c.hellos() {
		c.expect(h.hello.Epoch == c.hellos()[0].hello.Epoch, "the epoch changed from %s to %s", c.hellos()[0].hello.Epoch, h.hello.Epoch)
	}
}

func r4Grace(c *Case) {
	c.begin(refserver.Config{ReconnectGrace: time.Second})
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.SetFaults(refserver.Faults{RejectHello: wire.RejectDraining})
	c.server.Drop(c.device)
	how := a.settled()
	c.expect(how.By == refserver.ByReconnectGrace, "the reconnect grace had run out, so the server had to give the work up; got %s", tell(how))
	c.server.SetFaults(refserver.Faults{})
	c.again(1)
	c.dead("active after the grace", pid)
	late := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice())))
	c.expect(len(late) == 0, "%d frames for work that was given up when the reconnect grace ran out", len(late))
}
