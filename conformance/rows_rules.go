package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var ruleRows = []Row{
	{ID: "R1-once", Section: "R1, §5.0", Promise: "an instruction runs at most once, also if its frame seems to come again", run: r1Once},
	{ID: "R1-same-text", Section: "R1, §5.4", Promise: "the same command under a new id is new work", run: r1SameText},
	{ID: "R1-every-answered", Section: "R1, §5.0", Promise: "every instruction is answered, once, also if they come at once", run: r1EveryAnswered},
	{ID: "R2-keeps-running", Section: "R2, §1.5", Promise: "listed work keeps running over a reconnect of the same epoch", run: r2KeepsRunning},
	{ID: "R2-from-watermark", Section: "R2, R7", Promise: "after a reconnect chunks go on right above the watermark", run: r2FromWatermark},
	{ID: "R2-unlisted", Section: "R2, §1.5", Promise: "work that is not listed is ended before generationAck, and nothing is sent for it", run: r2Unlisted},
	{ID: "R2-unlisted-result", Section: "R2, §5.4", Promise: "a result that is not listed is dropped", run: r2UnlistedResult},
	{ID: "R3-new-epoch", Section: "R3", Promise: "a new process has a new epoch and resumes nothing", run: r3NewEpoch},
	{ID: "R3-same-epoch", Section: "R3, §2.2", Promise: "the same process keeps its epoch over reconnects", run: r3SameEpoch},
	{ID: "R4-grace", Section: "R4", Promise: "after the reconnect grace the work is gone from the list, and ended", run: r4Grace},
	{ID: "R5-result-again", Section: "R5", Promise: "a result that was lost is sent again after a reconnect, the work is not done again", run: r5ResultAgain},
	{ID: "R5-acked", Section: "R5, §2.4", Promise: "after resultAck a result is not sent again", run: r5Acked},
	{ID: "R5-bounded", Section: "R5, §7", Promise: "a result that is never acknowledged is given up after a bounded number of sendings", run: r5Bounded, limit: 2 * time.Minute},
	{ID: "R6-device-seq", Section: "R6", Promise: "a result sent again has the same deviceSeq and the same outcome", run: r6DeviceSeq},
	{ID: "R7-same-bytes", Section: "R7, §5.4", Promise: "a chunk sent again has the same bytes under the same number", run: r7SameBytes},
	{ID: "R8-no-gap", Section: "R8", Promise: "no streamSeq is skipped, also over reconnects in mid-stream", run: r8NoGap},
	{ID: "R9-gen", Section: "R9", Promise: "every frame after a reconnect carries the new gen", run: r9Gen},
	{ID: "R10-fence", Section: "R10, §1.5", Promise: "what is not listed is dead when generationAck comes", run: r10Fence},
	{ID: "R10-crash", Section: "R10, §6.10", Promise: "what a killed executor left running is dead when its successor sends generationAck", run: r10Crash},
	{ID: "R10-one-instance", Section: "R10, §6.10", Promise: "a second process of the same identity does not connect beside the first", run: r10OneInstance},
	{ID: "R11-killed", Section: "R11, §5.3", Promise: "cancel ends a running command within 10 s, and only then says killed", run: r11Killed},
	{ID: "R11-stubborn", Section: "R11", Promise: "cancel ends a command that ignores TERM, with its children", run: r11Stubborn},
	{ID: "R11-not-started", Section: "R11, §5.3", Promise: "cancel of work that has not begun says not_started, and nothing happened", run: r11NotStarted},
	{ID: "R11-idempotent", Section: "R11", Promise: "a repeated cancel changes nothing: one terminal", run: r11Idempotent},
	{ID: "R11-finished", Section: "R11", Promise: "cancel of finished work leaves its ordinary outcome", run: r11Finished},
	{ID: "R11-replayed", Section: "R11", Promise: "a cancel that was lost with its connection is heeded when it comes again", run: r11Replayed},
	{ID: "R11-unknown", Section: "R11", Promise: "a cancel for an unknown id is a no-op", run: r11Unknown},
	{ID: "R12-timeout", Section: "R12", Promise: "timeoutMs kills the work, and only then says timeout", run: r12Timeout},
	{ID: "R12-tree", Section: "R12, §3.3", Promise: "timeout is not said while a process of the command lives", run: r12Tree},
	{ID: "R12-spent", Section: "R12", Promise: "a timeoutMs of 0 or less has run out: the command does not run on", run: r12Spent},
	{ID: "R12-disconnected", Section: "R12, R2", Promise: "timeoutMs runs on while disconnected", run: r12Disconnected},
	{ID: "R13-revoked", Section: "R13", Promise: "bye revoked: stop connecting and delete the private key", run: r13Revoked},
	{ID: "R13-draining", Section: "R13", Promise: "bye draining: reconnect with back-off, work goes on", run: r13Draining},
	{ID: "R13-superseded", Section: "R13", Promise: "bye superseded: stop, do not race the other", run: r13Superseded},
	{ID: "R14-heartbeat", Section: "R14, §2.2", Promise: "a heartbeat each interval, seq increasing, inflight true", run: r14Heartbeat},
	{ID: "R14-busy", Section: "R14", Promise: "heartbeats go on under a flood of output", run: r14Busy},
}

// marks counts the lines of a file that commands append to.
func (c *Case) marks(path string) int { return strings.Count(c.read(path), "\n") }

func r1Once(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	var frame atomic.Value
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		if in, ok := f.(*wire.Instruction); ok {
			if b, err := wire.AppendServer(nil, in); err == nil {
				frame.Store(b)
			}
			return refserver.Action{Repeat: 2}
		}
		return refserver.Action{}
	}})
	a := c.ask(run("echo x >> " + mark + "; sleep 0.5"))
	c.exited(a.settled(), 0)
	b, _ := frame.Load().([]byte)
	c.server.Inject(c.device, b) // long finished
	c.server.SetFaults(refserver.Faults{})
	c.exited(c.do(run("sleep 0.5")), 0)
	c.expect(c.marks(mark) == 1, "it ran %d times", c.marks(mark))
	results := c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
	c.expect(len(results) == 1, "%d results", len(results))
}

func r1SameText(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	for range 3 {
		a := c.do(run("echo x >> " + mark + "; wc -l < " + mark))
		c.exited(a, 0)
	}
	c.expect(c.marks(mark) == 3, "three instructions with one text ran %d times", c.marks(mark))
}

func r1EveryAnswered(c *Case) {
	c.begin(refserver.Config{MaxInflight: 16})
	var all []*asked
	for i := range 40 {
		switch i % 4 {
		case 0:
			all = append(all, c.ask(run(fmt.Sprintf("echo %d; exit %d", i, i))))
		case 1:
			all = append(all, c.ask(on(wire.KindExists, c.path("x"))))
		case 2:
			all = append(all, c.ask(put(wire.KindWriteFile, c.path(fmt.Sprint(i)), []byte("x"))))
		case 3:
			all = append(all, c.ask(on(wire.KindReadTextFile, c.path("none"))))
		}
	}
	for i, a := range all {
		how := a.settled()
		c.expect(how.By == refserver.ByResult, "number %d: %s", i, tell(how))
		c.expect(len(c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))) == 1, "number %d was answered more than once", i)
	}
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
	a := c.ask(run("echo x >> " + mark + "; " + counting(150)))
	pid := c.pidIn(c.path("pid"))
	c.server.Drop(c.device)
	c.gone()
	c.expect(alive(pid), "the command was ended by the disconnect")
	c.again(1)
	c.expect(alive(pid), "the command was ended by the reconnect")
	how := a.settled()
	c.exited(how, 0)
	c.expect(c.marks(mark) == 1, "it ran %d times", c.marks(mark))
	c.expect(string(how.stdout) == counted(150), "of its output %d bytes came, not %d", len(how.stdout), len(counted(150)))
}

func r2FromWatermark(c *Case) {
	c.begin(refserver.Config{})
	c.loseChunks(10) // so that more was sent than the server has
	a := c.ask(run(counting(200)))
	c.gone()
	mark := a.Watermark()
	c.again(1)
	c.exited(a.settled(), 0)
	resumed := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice(wire.TypeChunk))))
	if c.expect(len(resumed) > 0, "no chunks after the reconnect") {
		c.expect(resumed[0].Seq == mark+1, "the server's watermark is %d; the first chunk after the reconnect is %d", mark, resumed[0].Seq)
	}
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
	c.expect(len(late) == 0, "%d frames for it after the reconnect", len(late))
	for _, m := range c.trace.messages(onConn(c.conn(), fromDevice(wire.TypeHeartbeat))) {
		c.expect(!slices.Contains(m.beat.Inflight, a.ID()), "a heartbeat still names it")
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
	a := c.ask(run("echo x >> " + mark + "; echo $$ > pid; sleep 30"))
	c.pidIn(c.path("pid"))
	c.exec.kill()
	c.gone()
	c.serve()
	c.active()
	c.expect(a.settled().By == refserver.ByNewEpoch, "the server saw no new epoch: %s", tell(a.settled()))
	c.exited(c.do(run("sleep 0.5")), 0)
	hellos := c.hellos()
	c.expect(hellos[0].hello.Epoch != hellos[len(hellos)-1].hello.Epoch, "the new process has the old epoch")
	late := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice())))
	c.expect(len(late) == 0, "%d frames for work of an earlier process", len(late))
	c.expect(c.marks(mark) == 1, "it ran %d times", c.marks(mark))
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
	c.expect(how.By == refserver.ByReconnectGrace, "settled %s", tell(how))
	c.server.SetFaults(refserver.Faults{})
	c.again(1)
	c.dead("active after the grace", pid)
	late := c.trace.messages(about(a.ID(), onConn(c.conn(), fromDevice())))
	c.expect(len(late) == 0, "%d frames for it after the grace", len(late))
}

// loseResult makes the first result of an instruction get lost with its
// connection, and returns the settled answer and both results.
func (c *Case) loseResult(command string) (answer, []message) {
	var lost atomic.Bool
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		if _, result := f.(*wire.Result); result && lost.CompareAndSwap(false, true) {
			return refserver.Action{Drop: true, Cut: true}
		}
		return refserver.Action{}
	}})
	a := c.ask(run(command))
	how := a.settled()
	return how, c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
}

func r5ResultAgain(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	how, results := c.loseResult("echo x >> " + mark + "; echo out; exit 5")
	c.exited(how, 5)
	c.expect(len(results) == 2, "%d results went out", len(results))
	c.expect(c.marks(mark) == 1, "it ran %d times", c.marks(mark))
}

func r6DeviceSeq(c *Case) {
	c.begin(refserver.Config{})
	for i := range 3 { // so that numbers differ between instructions, if they do
		c.exited(c.do(run(fmt.Sprintf("exit %d", i))), int64(i))
	}
	how, results := c.loseResult("exit 6")
	c.exited(how, 6)
	for _, r := range results {
		c.expect(r.Seq == results[0].Seq, "deviceSeq %d, then %d", results[0].Seq, r.Seq)
		c.expect(r.sum == results[0].sum, "the outcome of the retransmission is another one")
	}
}

func r5Acked(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("exit 1"))
	c.exited(a.settled(), 1)
	c.exited(c.do(run("true")), 0) // its resultAck has certainly come
	for range 2 {
		c.drop()
	}
	c.exited(c.do(run("sleep 1")), 0)
	results := c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
	c.expect(len(results) == 1, "%d results, though the first was acknowledged", len(results))
}

func r5Bounded(c *Case) {
	c.begin(refserver.Config{})
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		r, ok := f.(*wire.Result)
		return refserver.Action{Drop: ok && r.Outcome == wire.Outcome(wire.ExecOutcome{ExitCode: 77})}
	}})
	a := c.ask(run("exit 77"))
	const rounds = 24
	for range rounds {
		c.drop()
		c.do(on(wire.KindExists, c.path("x"))) // an answer, so that the connection was a good one
	}
	results := c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
	c.expect(len(results) < rounds-2, "over %d connections it was sent %d times", rounds+1, len(results))
}

// loseChunks drops chunks from a number on, on the present connection only, and
// cuts the connection a few later.
func (c *Case) loseChunks(from int64) {
	first := c.conn()
	var cut atomic.Bool
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		ch, ok := f.(*wire.Chunk)
		if !ok || cut.Load() || c.conn() != first || ch.StreamSeq < from {
			return refserver.Action{}
		}
		end := ch.StreamSeq >= from+5
		if end {
			cut.Store(true)
		}
		return refserver.Action{Drop: true, Cut: end}
	}})
}

func r7SameBytes(c *Case) {
	c.begin(refserver.Config{})
	c.loseChunks(4)
	a := c.ask(run(counting(120)))
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == counted(120), "of its output %d bytes came, not %d", len(how.stdout), len(counted(120)))
	first := map[int64]uint64{}
	again := 0
	for _, m := range c.chunksOf(a.ID()) {
		if sum, sent := first[m.Seq]; sent {
			again++
			c.expect(sum == m.sum, "chunk %d has other bytes when sent again", m.Seq)
		}
		first[m.Seq] = m.sum
	}
	c.expect(again >= 5, "only %d of the lost chunks were sent again", again)
}

func r8NoGap(c *Case) {
	c.begin(refserver.Config{GapTimeout: 5 * time.Second})
	a := c.ask(run("head -c 3000000 /dev/zero | tr '\\0' 'x'; " + counting(150)))
	for i := range 4 {
		n := i + 1
		c.rest(700 * time.Millisecond)
		c.server.Drop(c.device)
		c.again(n)
	}
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == strings.Repeat("x", 3_000_000)+counted(150), "%d bytes came, not %d", len(how.stdout), 3_000_000+len(counted(150)))
	c.contiguous(a.ID(), 0)
}

func r9Gen(c *Case) {
	c.begin(refserver.Config{Heartbeat: 300 * time.Millisecond})
	a := c.ask(run(counting(150)))
	c.seen("output", about(a.ID(), fromDevice(wire.TypeChunk)))
	c.drop()
	c.exited(a.settled(), 0)
	gens := map[int64]wire.Gen{}
	for _, m := range c.trace.messages(fromDevice()) {
		switch {
		case m.Type == string(wire.TypeHello):
		case gens[m.Conn] == "":
			gens[m.Conn] = m.Gen
		default:
			c.expect(m.Gen == gens[m.Conn], "connection %d has %s frames of generation %s and %s", m.Conn, m.Type, gens[m.Conn], m.Gen)
		}
	}
	c.expect(len(gens) == 2, "%d generations", len(gens))
}

func r10Fence(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("trap '' TERM; echo $$ > pid; while :; do sleep 0.2; done"))
	pid := c.pidIn(c.path("pid"))
	var aliveThen, came atomic.Bool
	c.onAck(func() { aliveThen.Store(alive(pid)); came.Store(true) })
	n := c.state().Connections
	c.server.Restart()
	a.settled()
	c.again(n)
	c.expect(came.Load() && !aliveThen.Load(), "process %d of unlisted work was alive when generationAck came", pid)
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
	c.expect(came.Load() && !aliveThen.Load(), "process %d of the killed executor was alive when generationAck came", pid)
}

func r10OneInstance(c *Case) {
	c.begin(refserver.Config{})
	first := c.exec
	a := c.ask(run("sleep 4; echo undisturbed"))
	second := c.serve()
	c.rest(3 * time.Second)
	c.expect(len(c.hellos()) == 1, "%d hellos; the second process dialled too", len(c.hellos()))
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == "undisturbed\n", "output %q", how.stdout)
	c.expect(!first.ended(), "the first process ended")
	second.finish()
}

// cancelled expects a cancel's own receipt.
func (c *Case) cancelled(a answer, state wire.CancelState) {
	o, ok := a.Outcome.(wire.CancelledOutcome)
	c.expect(ok && o.State == state && a.By == refserver.ByResult, "expected cancelled %s, got %s", state, tell(a))
}

func r11Killed(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("sleep 60 & echo $! > child; echo $$ > pid; wait"))
	pid, child := c.pidIn(c.path("pid")), c.pidIn(c.path("child"))
	at := time.Now()
	a.Cancel()
	how := a.settled()
	c.dead("killed was said", pid, child)
	c.expect(time.Since(at) < 10*time.Second, "it took %v", time.Since(at))
	c.cancelled(how, wire.CancelKilled)
}

func r11Stubborn(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("trap '' TERM INT HUP; sh -c 'trap \"\" TERM INT HUP; echo $$ > child; while :; do sleep 0.1; done' & echo $$ > pid; while :; do sleep 0.1; done"))
	pid, child := c.pidIn(c.path("pid")), c.pidIn(c.path("child"))
	a.Cancel()
	how := a.settled()
	c.dead("killed was said", pid, child)
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
	c.holdCommit()
	path := c.write(c.path("in", "target"), "as it was")
	a := c.ask(put(wire.KindWriteFile, path, noise(5000, 2)))
	c.rest(300 * time.Millisecond)
	a.Cancel()
	c.cancelled(a.settled(), wire.CancelNotStarted)
	c.expect(c.read(path) == "as it was", "the file was written")
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
	c.expect(len(results) == 1, "%d terminals", len(results))
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
	for range 3 {
		c.inject(&wire.Cancel{Gen: c.state().Gen, InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W"})
	}
	c.exited(c.do(run("sleep 0.3; exit 2")), 2)
	c.expect(c.state().Connections == 1, "it reconnected")
	c.expect(len(c.trace.messages(about("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", fromDevice()))) == 0, "it answered for an id it never had")
}

func r12Timeout(c *Case) {
	c.begin(refserver.Config{})
	d := run("echo $$ > pid; sleep 60")
	d.TimeoutMs = 2000
	a := c.ask(d)
	pid := c.pidIn(c.path("pid"))
	how := a.settled()
	c.dead("timeout was said", pid)
	c.failed("the command", how, wire.CodeTimeout)
	c.expect(how.took >= 1900*time.Millisecond && how.took < 12*time.Second, "it took %v", how.took)
}

func r12Tree(c *Case) {
	c.begin(refserver.Config{})
	d := run("trap '' TERM; sleep 61 & echo $! > one; sh -c 'sleep 62 & echo $! > two; wait' & setsid sleep 63 & echo $! > three; wait")
	d.TimeoutMs = 2000
	a := c.ask(d)
	one, two, three := c.pidIn(c.path("one")), c.pidIn(c.path("two")), c.pidIn(c.path("three"))
	how := a.settled()
	if f, ok := how.Outcome.(wire.Failure); ok && f.Code == wire.CodeOutcomeUnknown {
		return // honest: it does not say that all is dead
	}
	c.dead("timeout was said", one, two, three)
	c.failed("the command", how, wire.CodeTimeout)
}

func r12Spent(c *Case) {
	c.begin(refserver.Config{})
	d := run("sleep 3; touch ran-on")
	d.TimeoutMs = -1
	how := c.do(d)
	c.failed("the command", how, wire.CodeTimeout)
	c.rest(3500 * time.Millisecond)
	c.expect(!exists(c.path("ran-on")), "it ran on after timeout was said")
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

func r13Revoked(c *Case) {
	c.watchHTTP()
	c.begin(refserver.Config{})
	keys := c.keyFiles()
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.Revoke(c.device)
	a.settled()
	c.expect(c.eventually(15*time.Second, func() bool { return !alive(pid) }), "the command still runs after the revocation")
	c.forgotten(keys, 1)
}

func r13Draining(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run(counting(150)))
	c.pidIn(c.path("pid"))
	at := time.Now()
	c.server.Bye(c.device, wire.ByeDraining)
	c.again(1)
	hellos := c.hellos()
	gap := hellos[len(hellos)-1].at.Sub(at)
	c.expect(gap >= 300*time.Millisecond, "it was back after %v: no back-off", gap)
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == counted(150), "of its output %d bytes came", len(how.stdout))
}

func r13Superseded(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.Supersede(c.device)
	a.settled()
	c.expect(c.eventually(15*time.Second, func() bool { return !alive(pid) }), "its command still runs, beside the other executor's")
	c.rest(4 * time.Second)
	c.expect(len(c.hellos()) == 1, "it dialled again")
}

func r14Heartbeat(c *Case) {
	const interval = 800 * time.Millisecond
	c.begin(refserver.Config{Heartbeat: interval})
	a := c.ask(run("echo $$ > pid; sleep 8"))
	c.pidIn(c.path("pid"))
	c.rest(8 * interval)
	during := c.trace.messages(fromDevice(wire.TypeHeartbeat))
	c.exited(a.settled(), 0)
	c.rest(5 * interval)
	beats := c.trace.messages(fromDevice(wire.TypeHeartbeat))
	c.expect(len(during) >= 5 && len(during) <= 10, "%d heartbeats in 8 intervals", len(during))
	listed := 0
	for i, m := range during {
		if slices.Contains(m.beat.Inflight, a.ID()) {
			listed++
		}
		if i > 0 {
			c.expect(m.Seq > during[i-1].Seq, "seq %d after %d", m.Seq, during[i-1].Seq)
			gap := m.at.Sub(during[i-1].at)
			c.expect(gap < 3*interval, "%v between two heartbeats", gap)
		}
	}
	c.expect(listed >= len(during)-2, "the running command is listed in %d of %d heartbeats", listed, len(during))
	if len(beats) == 0 {
		return
	}
	last := beats[len(beats)-1]
	c.expect(len(last.beat.Inflight) == 0, "finished work is still listed: %v", last.beat.Inflight)
	c.expect(c.state().Connections == 1, "the quiet connection was lost")
}

func r14Busy(c *Case) {
	c.begin(refserver.Config{Heartbeat: time.Second})
	d := run("head -c 30000000 /dev/zero; sleep 1")
	d.AckDelivered = true
	d.Deliver = func(_ wire.ChunkKind, data []byte) error {
		time.Sleep(time.Duration(len(data)) * 100 * time.Nanosecond) // 10 MB/s
		return nil
	}
	a := c.ask(d)
	c.exited(a.settled(), 0)
	beats := c.trace.messages(fromDevice(wire.TypeHeartbeat))
	for i := 1; i < len(beats); i++ {
		gap := beats[i].at.Sub(beats[i-1].at)
		c.expect(gap < 3*time.Second, "%v between two heartbeats", gap)
	}
	c.expect(len(beats) >= 3, "%d heartbeats", len(beats))
}
