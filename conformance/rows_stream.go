package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var streamRows = []Row{
	{ID: "stream-numbers", Section: "§4", Promise: "streamSeq starts at 0 and goes up by one, per instruction, and each has its own output", run: streamNumbers},
	{ID: "stream-exit", Section: "§4", Promise: "a command's stream ends with exactly one exit chunk, which the result repeats", run: streamExit},
	{ID: "stream-exit-silent", Section: "§4", Promise: "a command without output has exit as chunk 0", run: streamExitSilent},
	{ID: "stream-before-result", Section: "§4", Promise: "every chunk goes before the result, and none after it", run: streamBeforeResult},
	{ID: "stream-acks-lost", Section: "§4, R7", Promise: "with chunkAcks lost the result still goes last, and the stream is whole after a reconnect", run: streamAcksLost},
	{ID: "stream-exact", Section: "§4", Promise: "output arrives byte for byte, whatever its bytes and its size", run: streamExact, limit: 2 * time.Minute},
	{ID: "stream-base64", Section: "§4, §2.2", Promise: "chunks are canonical base64 and well-formed, at every length", run: streamBase64},
	{ID: "text-utf8", Section: "§2, §3.3", Promise: "every frame is UTF-8, whatever the names and messages in it", run: textUTF8},
	{ID: "stream-entries", Section: "§4", Promise: "empty chunks do not come in numbers, neither with much output nor with none", run: streamEntries},
	{ID: "stream-slow-consumer", Section: "§4, §8", Promise: "of output that is taken slowly nothing is lost unsaid", run: streamSlow},
	{ID: "stream-failed", Section: "§3.1, §4", Promise: "what execStream has written is there, also if it is cut short", run: streamFailed},
	{ID: "closed-sets", Section: "§2.2, §3.3, §4, §5.3", Promise: "only members of the closed sets are ever sent", run: closedSets},
}

// chunksOf are an instruction's chunks, as sent.
func (c *Case) chunksOf(id string) []message {
	return c.trace.messages(about(id, fromDevice(wire.TypeChunk)))
}

// contiguous expects the chunks of one connection to be numbered without a hole
// from a first number on.
func (c *Case) contiguous(id string, first int64) {
	next := first
	for _, m := range c.chunksOf(id) {
		if m.Seq > next {
			c.fail("the chunk with streamSeq %d came where %d was due", m.Seq, next)
			return
		}
		next = max(next, m.Seq+1)
	}
}

func streamNumbers(c *Case) {
	c.begin(refserver.Config{})
	var all []*asked
	for i := range 3 {
		all = append(all, c.ask(run(fmt.Sprintf("i=0; while [ $i -lt 40 ]; do echo %d $i; echo e >&2; i=$((i+1)); sleep 0.01; done", i))))
	}
	for i, a := range all {
		how := a.settled()
		c.exited(how, 0)
		var lines strings.Builder
		for n := range 40 {
			fmt.Fprintf(&lines, "%d %d\n", i, n)
		}
		c.whole(how, lines.String(), strings.Repeat("e\n", 40))
		chunks := c.chunksOf(a.ID())
		c.expect(len(chunks) > 1, "%d chunks of a command that wrote every 10 ms for a while; expected several", len(chunks))
		for i, m := range chunks {
			if !c.expect(m.Seq == int64(i), "the chunk at place %d, counted from 0, has streamSeq %d", i, m.Seq) {
				break
			}
		}
	}
}

func streamExit(c *Case) {
	c.begin(refserver.Config{})
	for _, kind := range []wire.Kind{wire.KindExec, wire.KindExecStream} {
		a := c.ask(refserver.Dispatch{Kind: kind, Args: wire.ExecArgs{Command: "echo out; echo err >&2; exit 42"}})
		how := a.settled()
		c.exited(how, 42)
		c.expect(how.Stream.Exits == 1 && how.Stream.ExitCode == 42, "%d exit chunks with exitCode %d; expected 1 with 42", how.Stream.Exits, how.Stream.ExitCode)
		chunks := c.chunksOf(a.ID())
		c.expect(len(chunks) > 0 && chunks[len(chunks)-1].Kind == string(wire.ChunkExit), "the last chunk is not the exit chunk")
	}
}

func streamExitSilent(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("true"))
	c.exited(a.settled(), 0)
	chunks := c.chunksOf(a.ID())
	c.expect(len(chunks) == 1 && chunks[0].Kind == string(wire.ChunkExit) && chunks[0].Seq == 0, "a command without output: %d chunks came; expected one of kind exit, with streamSeq 0", len(chunks))
}

func streamBeforeResult(c *Case) {
	c.begin(refserver.Config{})
	for range 5 {
		a := c.ask(run("head -c 200000 /dev/zero; (sleep 0.1; echo late) & exit 0"))
		c.exited(a.settled(), 0)
		c.rest(300 * time.Millisecond)
		after := false
		for _, m := range c.trace.messages(about(a.ID(), fromDevice())) {
			c.expect(!after || m.Type != string(wire.TypeChunk), "a chunk after the result")
			after = after || m.Type == string(wire.TypeResult)
		}
	}
}

func streamAcksLost(c *Case) {
	c.begin(refserver.Config{})
	c.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeChunkAck)})
	a := c.ask(run("i=0; while [ $i -lt 90 ]; do echo line $i; i=$((i+1)); sleep 0.06; done; touch finished; exit 8"))
	c.expect(c.eventually(2*patience, func() bool { return exists(c.path("finished")) }), "with chunkAcks withheld the command does not come to its end within 40 s")
	select {
	case <-a.Done():
	case <-time.After(2 * time.Second): // it is held back, as it may be
		c.server.SetFaults(refserver.Faults{})
		c.drop()
	}
	how := a.settled()
	c.exited(how, 8)
	c.whole(how, counted(90), "")
}

func streamExact(c *Case) {
	c.begin(refserver.Config{})
	content := noise(3<<20+11, 12)
	c.write(c.path("bytes"), string(content))
	d := run("cat bytes; cat bytes >&2")
	d.AckDelivered = true
	a := c.do(d)
	c.exited(a, 0)
	c.whole(a, string(content), string(content))
	const times = 8 // more than is held anywhere
	d = run(strings.TrimSuffix(strings.Repeat("cat bytes; ", times), "; "))
	d.AckDelivered = true
	a = c.do(d)
	c.exited(a, 0)
	c.whole(a, strings.Repeat(string(content), times), "")
}

func streamBase64(c *Case) {
	c.begin(refserver.Config{}) // refuses any other form
	for n := range 8 {
		content := strings.Repeat("\xfb\xff", 200)[:n]
		path := c.write(c.path(fmt.Sprint(n)), content)
		c.expect(string(c.do(on(wire.KindReadBinaryFile, path)).data) == content, "a file of %d bytes did not come through", n)
	}
	for _, m := range c.trace.messages(fromDevice()) {
		c.expect(m.Refused == "" && !m.Binary, "a frame was refused: %s", m.Refused)
	}
}

func textUTF8(c *Case) {
	c.begin(refserver.Config{}) // every row looks at the text of all frames
	dir := c.path("dir")
	c.must(os.Mkdir(dir, 0o755))
	if err := os.WriteFile(filepath.Join(dir, "odd \xff\xc3"), nil, 0o644); err == nil { // not every system has such names
		c.must(os.Symlink("odd \xff\xc3", filepath.Join(dir, "link")))
	}
	c.do(on(wire.KindListDir, dir))
	c.do(on(wire.KindCanonicalPath, filepath.Join(dir, "link")))
	if c.declares(wire.KindReadLink) {
		c.do(on(wire.KindReadLink, filepath.Join(dir, "link")))
	}
	c.failed("reading a folder", c.do(on(wire.KindReadTextFile, dir)), wire.CodeIsDirectory)
	for n := range 4 { // wherever a message is cut, it is within one of these
		c.failed("a long name", c.do(on(wire.KindReadTextFile, "/"+strings.Repeat("n", n)+strings.Repeat("𝄞", 20_000))))
	}
	a := c.do(run(`printf '\377'; printf '\303' >&2`))
	c.expect(string(a.stdout) == "\xff" && string(a.stderr) == "\xc3", "stdout is %q and stderr %q; expected one byte each, ff and c3", a.stdout, a.stderr)
	c.expect(c.state().Connections == 1, "something of it cost the connection")
}

func streamEntries(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(live("sleep 2; i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done"))
	c.exited(a.settled(), 0)
	empty := 0
	for _, m := range c.chunksOf(a.ID()) {
		if m.Kind != string(wire.ChunkExit) && m.Bytes == 0 {
			empty++
		}
	}
	c.expect(empty <= 16, "%d chunks without a byte; at most 16 are let pass", empty)
}

func streamSlow(c *Case) {
	c.begin(refserver.Config{})
	const size = 8_000_000
	var taken atomic.Int64
	d := run(fmt.Sprintf("head -c %d /dev/zero", size))
	d.AckDelivered = true
	slow := make(chan struct{})
	d.Deliver = func(_ wire.ChunkKind, data []byte) error {
		if taken.Add(int64(len(data))) < 100_000 {
			<-slow
		}
		return nil
	}
	a := c.ask(d)
	c.rest(2 * time.Second)
	close(slow)
	how := a.settled()
	if how.Stream.Overflow { // there is no window, so this may be: the server then cancels
		c.expect(how.By == refserver.ByResult, "expected an answer of the executor's own, got %s", tell(how))
		return
	}
	c.exited(how, 0)
	e, ok := how.Outcome.(wire.ExecOutcome)
	cut := ok && e.Truncated != nil && e.Truncated.Stdout
	c.expect(taken.Load() == size || cut && taken.Load() < size, "%d bytes of stdout came of %d, and truncated.stdout is %t", taken.Load(), size, cut)
}

func streamFailed(c *Case) {
	c.begin(refserver.Config{})
	d := live("echo before; sleep 60; echo after")
	d.TimeoutMs = 1500
	a := c.ask(d)
	how := a.settled()
	c.failed("a command that ran out of time", how, wire.CodeTimeout)
	c.expect(string(how.stdout) == "before\n", "stdout is %q; expected what was written before the end, \"before\\n\"", how.stdout)
}

func closedSets(c *Case) {
	c.begin(refserver.Config{Heartbeat: time.Second})
	d := run("echo x; echo y >&2; sleep 60")
	d.TimeoutMs = 800
	c.failed("a timeout", c.do(d), wire.CodeTimeout)
	c.failed("a missing file", c.do(on(wire.KindReadTextFile, c.path("none"))), wire.CodeNotFound)
	a := c.ask(run("echo $$ > pid; sleep 60"))
	c.pidIn(c.path("pid"))
	a.Cancel()
	a.settled()
	c.seen("a heartbeat", fromDevice(wire.TypeHeartbeat))
	for _, m := range c.trace.messages(fromDevice()) {
		// Parsed by the strict decoder: types, kinds, states, codes and reasons
		// outside the closed sets are refused as unknown_type or bad_shape.
		c.expect(m.Refused == "", "a %q frame was refused: %s", m.Type, m.Refused)
	}
}
