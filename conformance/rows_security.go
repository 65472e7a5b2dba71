package conformance

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var securityRows = []Row{
	{ID: "S1-outbound", Section: "§6.1", Promise: "no process of the executor has a socket that others can reach", run: s1Outbound},
	{ID: "S1-descriptors", Section: "§6.1, §6.2", Promise: "a command gets neither the connection nor any file of the executor", run: s1Descriptors},
	{ID: "S2-key-file", Section: "§6.2", Promise: "a key kept in a file is its owner's alone", run: s2KeyFile},
	{ID: "S2-key-wire", Section: "§6.2", Promise: "the private key goes over no wire and into no output", run: s2KeyWire},
	{ID: "S3-token", Section: "§6.3", Promise: "neither token nor credential is stored or printed", run: s3Token},
	{ID: "S4-sign-once", Section: "§6.4, §1.3", Promise: "a second challenge on a socket is not signed", run: s4SignOnce},
	{ID: "S6-no-redirect", Section: "§6.6", Promise: "what is asked for outside the workspace is done there or refused, never elsewhere", run: s6NoRedirect},
	{ID: "S8-shellenv", Section: "§6.8", Promise: "shellEnv is never stored", run: s8ShellEnv},
	{ID: "S9-content", Section: "§6.9", Promise: "file bytes, payloads and output stay out of logs and of the executor's files", run: s9Content},
	{ID: "S9-credential", Section: "§6.9, §6.3", Promise: "the user's credential does not reach a command's environment", run: s9Credential},
	{ID: "M-outbox-bounded", Section: "§7", Promise: "output that is never acknowledged does not make memory grow without bound", run: mOutbox, limit: 2 * time.Minute},
	{ID: "M-settles", Section: "§7", Promise: "what was acknowledged is released: memory does not grow with the work done", run: mSettles, limit: 2 * time.Minute},
}

func s1Outbound(c *Case) {
	if !canLook {
		c.skip("this system does not show who listens")
	}
	c.begin(refserver.Config{})
	look := func(when string) {
		found, err := listening(c.exec.pid(), markOf(c.dir))
		c.must(err)
		c.expect(len(found) == 0, "%s: %s", when, strings.Join(found, ", "))
	}
	look("while idle")
	a := c.ask(run("echo $$ > pid; sleep 1"))
	c.pidIn(c.path("pid"))
	look("with a command running")
	c.exited(a.settled(), 0)
	c.drop()
	look("after a reconnect")
}

func s1Descriptors(c *Case) {
	if !canLook {
		c.skip("this system does not show open files")
	}
	c.begin(refserver.Config{})
	c.drop() // what is open now was not when the executor started
	a := c.do(run(`for f in /proc/$$/fd/*; do echo "${f##*/} $(readlink $f)"; done`))
	c.exited(a, 0)
	c.expect(len(a.stdout) > 0, "the command did not list its open files, from /proc/$$/fd")
	for line := range strings.Lines(string(a.stdout)) {
		number, to, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		stdio := number == "0" || number == "1" || number == "2"
		c.expect(stdio || !strings.HasPrefix(to, "socket:"), "descriptor %s of a command is %s, which is the executor's", number, to)
		c.expect(!strings.HasPrefix(to, c.place.home+"/"), "descriptor %s of a command is %s, which is the executor's", number, to)
	}
}

func s2KeyFile(c *Case) {
	c.watchHTTP()
	c.begin(refserver.Config{})
	files := c.keyFiles()
	if len(files) == 0 {
		c.skip("the key is in no file of the row's folder, which HOME and {home} are in")
	}
	for _, f := range files {
		info, err := os.Stat(f)
		c.must(err)
		c.expect(info.Mode().Perm()&0o077 == 0, "the private key is in %s, whose mode is %04o: others may read or write it; expected is 0600 or less", f, info.Mode().Perm())
	}
}

func s2KeyWire(c *Case) {
	calls := c.watchHTTP()
	c.open(refserver.Config{Heartbeat: time.Second})
	c.enroll()
	found := c.findKey()
	if len(found) == 0 {
		c.skip("the key is in no file of the row's folder, so its bytes are not known here")
	}
	seed := found[0].seed
	c.trace.mu.Lock()
	c.trace.secret = seed
	c.trace.mu.Unlock()
	c.serve()
	c.active()
	c.exited(c.do(run("env; true")), 0)
	c.drop()
	c.depart()
	c.trace.mu.Lock()
	leaked := c.trace.leaked
	c.trace.mu.Unlock()
	c.expect(len(leaked) == 0, "the private key went out in frames: %s", strings.Join(leaked, ", "))
	absent := func(where, text string) {
		form := holdsKey(text, seed)
		c.expect(form == "", "the private key went out %s, %s", where, form)
	}
	for _, call := range append(calls.to(enrollPath), calls.to(tokenPath)...) {
		absent("in the body of "+call.path, call.body)
	}
	for _, u := range calls.upgraded() {
		absent("in the WebSocket upgrade", fmt.Sprint(u))
	}
	for _, x := range c.procs {
		absent("in what the executor printed", c.said(x))
	}
}

func s3Token(c *Case) {
	calls := c.watchHTTP()
	c.begin(refserver.Config{})
	texts := []string{credential}
	for _, b := range registrations(c, calls) {
		texts = append(texts, b["token"])
	}
	c.exited(c.do(run("true")), 0)
	c.nowhere("after enrollment and work", texts...)
}

func s4SignOnce(c *Case) {
	c.begin(refserver.Config{})
	c.inject(&wire.Challenge{Nonce: "c2Vjb25kIG5vbmNl", ProtocolVersion: 1})
	c.rest(500 * time.Millisecond)
	c.active() // it may have left a connection on which such a thing happens
	c.exited(c.do(run("exit 5")), 5)
	signed := map[int64]int{}
	for _, h := range c.hellos() {
		signed[h.Conn]++
		c.expect(signed[h.Conn] == 1, "%d hellos went out on one socket; a second challenge must not be signed", signed[h.Conn])
	}
}

func s6NoRedirect(c *Case) {
	c.begin(refserver.Config{})
	outside := c.dir + "/outside"
	c.must(os.Mkdir(outside, 0o755))
	for _, d := range []refserver.Dispatch{
		put(wire.KindWriteFile, outside+"/file", []byte("content")),
		put(wire.KindAppendFile, outside+"/log", []byte("content")),
		{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: outside + "/dir"}},
	} {
		a := c.do(d)
		there := ""
		switch args := d.Args.(type) {
		case wire.WriteArgs:
			there = args.Path
		case wire.DirArgs:
			there = args.Path
		}
		if _, failed := a.Outcome.(wire.Failure); failed {
			c.failed(string(d.Kind), a, wire.CodePermissionDenied)
			c.expect(!exists(there), "%s was refused and done all the same", d.Kind)
			continue
		}
		c.expect(exists(there), "%s was answered with success, and there is nothing at %s", d.Kind, there)
	}
	entries, err := os.ReadDir(c.place.workspace)
	c.must(err)
	c.expect(len(entries) == 0, "something was put into the workspace in place of %s", outside)
}

func s8ShellEnv(c *Case) {
	c.begin(refserver.Config{Heartbeat: time.Second})
	const secret = "shellenv-marker-9d2f"
	d := run("sleep 1; test -n \"$TOKEN_OF_TASK\"")
	d.ShellEnv = map[string]string{"TOKEN_OF_TASK": secret}
	a := c.ask(d)
	c.rest(500 * time.Millisecond)
	c.nowhere("while the command runs", secret)
	c.exited(a.settled(), 0)
	c.depart()
	c.nowhere("afterwards", secret)
}

func s9Content(c *Case) {
	c.begin(refserver.Config{Heartbeat: time.Second})
	const file, payload, output, errors = "file-marker-51aa", "payload-marker-77cd", "output-marker-08bb", "errors-marker-3e4e"
	path := c.write(c.path("file"), file)
	c.do(on(wire.KindReadTextFile, path))
	c.do(put(wire.KindWriteFile, c.path("other"), []byte(payload)))
	c.do(put(wire.KindAppendFile, c.path("other"), []byte(payload)))
	// Built by the command, so that its text alone does not hold it.
	a := c.do(run("printf '%s-%s-%s\\n' output marker 08bb; printf '%s-%s-%s\\n' errors marker 3e4e >&2; exit 1"))
	c.exited(a, 1)
	c.expect(strings.Contains(string(a.stdout), output) && strings.Contains(string(a.stderr), errors), "the command's output is missing")
	c.depart()
	c.nowhere("after reading, writing and running", file, payload, output, errors)
}

func s9Credential(c *Case) {
	c.begin(refserver.Config{})
	a := c.do(run("env; cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'"))
	c.expect(!strings.Contains(string(a.stdout), credential), "a command can read the user's credential")
}

// resident is what the executor and all its processes hold in memory.
func (c *Case) resident() int64 {
	var sum int64
	for _, pid := range family(c.exec.pid()) {
		if m, err := memory(pid); err == nil { // else it ended meanwhile
			sum += m
		}
	}
	if sum == 0 {
		c.stop("the executor is gone, so that its memory cannot be looked at")
	}
	return sum
}

func mOutbox(c *Case) {
	if !canLook {
		c.skip("this system does not show memory")
	}
	const bound = 300 << 20 // of growth: far above what a bounded outbox needs, far below what comes
	c.begin(refserver.Config{})
	c.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeChunkAck)})
	large := c.write(c.path("large"), "")
	c.must(os.Truncate(large, 2_000_000_000)) // of holes, which take no room on the disk
	base := c.resident()
	var all []*asked
	for _, d := range []refserver.Dispatch{
		run("echo $$ > pid; exec head -c 2000000000 /dev/zero"), run("exec head -c 2000000000 /dev/zero >&2"), on(wire.KindReadBinaryFile, large),
	} {
		all = append(all, c.askUnread(d))
	}
	c.pidIn(c.path("pid"))
	// Until it holds no more than before for a while, as what is bounded comes to.
	var most int64
	for start, grew := time.Now(), time.Now(); most < bound && time.Since(grew) < 3*time.Second && time.Since(start) < patience; {
		c.rest(100 * time.Millisecond)
		if now := c.resident() - base; now > most+1<<20 {
			most, grew = now, time.Now()
		}
	}
	c.expect(most < bound, "with nothing acknowledged the executor and its processes hold %d MiB more memory than before; expected is a bound, below %d MiB", most>>20, bound>>20)
	c.server.SetFaults(refserver.Faults{})
	for _, a := range all {
		a.Cancel()
	}
	for _, a := range all {
		how := a.settled()
		c.expect(how.By == refserver.ByResult, "expected an answer of the executor's own, got %s", tell(how))
	}
}

func mSettles(c *Case) {
	if !canLook {
		c.skip("this system does not show memory")
	}
	c.begin(refserver.Config{MaxInflight: 8})
	const rounds, output = 3, 48 << 20
	grown := 0
	for round := range rounds + 1 { // the first is for what is taken once
		before := c.resident()
		var all []*asked
		for i := range 100 {
			all = append(all, c.ask(on(wire.KindExists, c.path(fmt.Sprint(i)))))
		}
		for range 20 {
			d := run(fmt.Sprintf("head -c %d /dev/zero", output/20))
			d.AckDelivered = true
			d.Deliver = func(wire.ChunkKind, []byte) error { return nil }
			all = append(all, c.ask(d))
		}
		for _, a := range all {
			how := a.settled()
			c.expect(how.By == refserver.ByResult, "expected an answer of the executor's own, got %s", tell(how))
		}
		// A runtime may take more for a while; what is never released takes it always.
		if more := c.resident() - before; round > 0 && more > output/2 {
			grown++
		}
	}
	c.expect(grown < rounds, "the executor grew by more than %d MiB with each %d MiB of output that were acknowledged", output/2>>20, output>>20)
}
