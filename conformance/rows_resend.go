package conformance

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var resendRows = []Row{
	{ID: "R5-result-again", Section: "R5", Promise: "a result that was lost is sent again after a reconnect, the work is not done again", run: r5ResultAgain},
	{ID: "R5-acked", Section: "R5, §2.4", Promise: "after resultAck a result is not sent again", run: r5Acked},
	{ID: "R5-bounded", Section: "R5, §7", Promise: "a result that is never acknowledged is given up after a bounded number of sendings", run: r5Bounded, limit: 2 * time.Minute},
	{ID: "R6-device-seq", Section: "R6", Promise: "a result sent again has the same deviceSeq and the same outcome", run: r6DeviceSeq},
	{ID: "R7-same-bytes", Section: "R7, §5.4", Promise: "a chunk sent again has the same bytes under the same number", run: r7SameBytes},
	{ID: "R8-no-gap", Section: "R8", Promise: "no streamSeq is skipped, also over reconnects in mid-stream", run: r8NoGap},
	{ID: "R9-gen", Section: "R9", Promise: "every frame after a reconnect carries the new gen", run: r9Gen},
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
	how, results := c.loseResult("echo x >> " + quote(mark) + "; echo out; exit 5")
	c.exited(how, 5)
	c.expect(len(results) >= 2, "%d results went out; expected a second, as the first was lost with its connection", len(results))
	c.expect(c.marks(mark) == 1, "the command ran %d times; expected once", c.marks(mark))
}

func r6DeviceSeq(c *Case) {
	c.begin(refserver.Config{})
	for i := range 3 { // so that numbers differ between instructions, if they do
		c.exited(c.do(run(fmt.Sprintf("exit %d", i))), int64(i))
	}
	how, results := c.loseResult("exit 6")
	c.exited(how, 6)
	for _, r := range results {
		c.expect(r.Seq == results[0].Seq, "deviceSeq was %d, and %d when the result was sent again; expected the same", results[0].Seq, r.Seq)
		c.expect(r.sum == results[0].sum, "the outcome was another one when the result was sent again")
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
	c.expect(len(results) == 1, "%d results went out, though the first was acknowledged; expected 1", len(results))
}

func r5Bounded(c *Case) {
	c.begin(refserver.Config{})
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		r, ok := f.(*wire.Result)
		return refserver.Action{Drop: ok && r.Outcome == wire.Outcome(wire.ExecOutcome{ExitCode: 77})}
	}})
	a := c.ask(run("exit 77"))
	c.seen("the result", about(a.ID(), fromDevice(wire.TypeResult)))
	const rounds = 24
	made := 0
	for ; made < rounds; made++ {
		n := c.state().Connections
		c.server.Drop(c.device)
		if !c.eventually(patience, func() bool { s := c.state(); return s.Active && s.Connections > n }) {
			break
		}
		c.do(on(wire.KindExists, c.path("x"))) // an answer, so that the connection was a good one
	}
	results := c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
	if made < rounds && len(results) == made+1 && !c.exec.ended() {
		c.skip("it waits longer with every connection that drops, so that only %d sendings were seen", len(results))
	}
	c.expect(made == rounds, "after connection %d was dropped it did not come back within 20 s", made+1)
	c.expect(len(results) < rounds-2, "over %d connections the result was sent %d times without an acknowledgement: no bound is to be seen", rounds+1, len(results))
}

// loseChunks drops chunks from a number on, on the present connection only, and
// cuts the connection a few later, or at the exit chunk.
func (c *Case) loseChunks(from int64) {
	first := c.conn()
	var cut atomic.Bool
	slow := func(_ string, f wire.ServerFrame) refserver.Action {
		if _, ok := f.(*wire.ChunkAck); ok { // so that more has been sent when one comes
			return refserver.Action{Delay: 30 * time.Millisecond}
		}
		return refserver.Action{}
	}
	c.server.SetFaults(refserver.Faults{Outgoing: slow, Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		ch, ok := f.(*wire.Chunk)
		last := ok && ch.Kind == wire.ChunkExit
		if !ok || cut.Load() || c.conn() != first || ch.StreamSeq < from && !last {
			return refserver.Action{}
		}
		end := ch.StreamSeq >= from+5 || last
		if end {
			cut.Store(true)
		}
		if end { // by then what was acknowledged before is known to be
			return refserver.Action{Delay: 200 * time.Millisecond, Drop: true, Cut: true}
		}
		return refserver.Action{Drop: true}
	}})
}

func r7SameBytes(c *Case) {
	c.begin(refserver.Config{})
	c.loseChunks(4)
	a := c.ask(live(counting(120)))
	how := a.settled()
	c.exited(how, 0)
	c.whole(how, counted(120), "")
	first := map[int64]uint64{}
	again := 0
	for _, m := range c.chunksOf(a.ID()) {
		if sum, sent := first[m.Seq]; sent {
			again++
			c.expect(sum == m.sum, "the chunk with streamSeq %d had other bytes when it was sent again", m.Seq)
		}
		first[m.Seq] = m.sum
	}
	c.expect(again >= 1, "none of the chunks that were lost with their connection was sent again")
}

func r8NoGap(c *Case) {
	c.begin(refserver.Config{GapTimeout: 5 * time.Second})
	a := c.ask(live("echo begun; head -c 3000000 /dev/zero | tr '\\0' 'x'; " + counting(150)))
	c.seen("output", about(a.ID(), fromDevice(wire.TypeChunk)))
	for i := range 4 {
		n := i + 1
		c.rest(700 * time.Millisecond)
		c.server.Drop(c.device)
		c.again(n)
	}
	how := a.settled()
	c.exited(how, 0)
	c.whole(how, "begun\n"+strings.Repeat("x", 3_000_000)+counted(150), "")
	c.contiguous(a.ID(), 0)
}

func r9Gen(c *Case) {
	c.begin(refserver.Config{Heartbeat: time.Second})
	a := c.ask(live(counting(150)))
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
	c.expect(len(gens) >= 2, "frames of %d generations went out; expected 2, one for each connection", len(gens))
}
