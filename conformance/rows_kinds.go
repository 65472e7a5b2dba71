package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var kindRows = []Row{
	{ID: "supports-mandatory", Section: "§3.6, §7", Promise: "every kind that is effectively mandatory is declared", run: supportsMandatory},
	{ID: "supports-constant", Section: "§3.2", Promise: "supports never varies, neither between connections nor between processes", run: supportsConstant},
	{ID: "undeclared", Section: "§3.2, §7", Promise: "a kind that is not declared is answered not_supported", run: undeclared},
	{ID: "bad-args", Section: "§3.3", Promise: "args that lack what their kind is about are answered with a failure, for every declared kind", run: badArgs},
	{ID: "outcome-shapes", Section: "§3.1, §3.3", Promise: "each kind answers with its own outcome, and only with what was asked for", run: outcomeShapes},
	{ID: "exec-output", Section: "§3.1", Promise: "exec sends both streams and the exit code", run: execOutput},
	{ID: "exec-codes", Section: "§3.1", Promise: "the exit code is the command's own", run: execCodes},
	{ID: "exec-cwd", Section: "§3.1", Promise: "a command runs in cwd, or in the workspace root without one", run: execCwd},
	{ID: "exec-cwd-missing", Section: "§3.3", Promise: "a cwd that is not there is a failure, and the command does not run elsewhere", run: execCwdMissing},
	{ID: "exec-shellenv", Section: "§6.8", Promise: "shellEnv is merged over the environment for that command only", run: execShellEnv},
	{ID: "exec-stdin", Section: "§8", Promise: "a command that reads its input does not hang: there is no stdin", run: execStdin},
	{ID: "exec-live", Section: "§3.1", Promise: "execStream's output arrives while the command runs", run: execLive},
	{ID: "exec-parallel", Section: "§1.5", Promise: "as many instructions as maxInflight run at the same time", run: execParallel},
}

// mandatory are the kinds of §3.6 and §7 that no executor may lack.
var mandatory = []wire.Kind{wire.KindExec, wire.KindExecStream, wire.KindExists, wire.KindCanonicalPath, wire.KindFileInfo,
	wire.KindReadTextFile, wire.KindReadTextLines, wire.KindReadBinaryFile, wire.KindWriteFile, wire.KindAppendFile,
	wire.KindListDir, wire.KindCreateDir, wire.KindRemove, wire.KindCreateTempDir, wire.KindCreateTempFile}

func supportsMandatory(c *Case) {
	c.begin(refserver.Config{})
	for _, k := range mandatory {
		c.expect(c.declares(k), "supports does not name %s, without which the lane lacks a tool (§3.6)", k)
	}
}

func supportsConstant(c *Case) {
	c.begin(refserver.Config{}) // the server notes a change
	first := slices.Sorted(slices.Values(c.state().Supports))
	c.drop()
	c.exec.kill()
	c.gone()
	c.serve()
	c.active()
	now := slices.Sorted(slices.Values(c.state().Supports))
	c.expect(slices.Equal(first, now), "supports was %v at first, and %v in another process", first, now)
}

func undeclared(c *Case) {
	c.begin(refserver.Config{})
	asked := 0
	for _, k := range append(wire.Kinds(), "teleport") {
		if !c.declares(k) {
			asked++
			d := refserver.Dispatch{Kind: k, RawArgs: json.RawMessage(`{"path":"/","paths":["/"]}`), Straggler: true}
			if k.TakesPayload() {
				d = put(k, c.path("x"), []byte("content"))
				d.Straggler = true
			}
			c.failed(string(k), c.do(d), wire.CodeNotSupported)
		}
	}
	_, err := os.Lstat(c.path("x"))
	c.expect(err != nil, "a kind that is not declared wrote a file")
	c.expect(asked > 0, "every kind there is is declared, also one that does not exist")
}

func badArgs(c *Case) {
	c.begin(refserver.Config{})
	for _, k := range wire.Kinds() {
		if !c.declares(k) {
			continue
		}
		for _, args := range []string{`{"path":7,"command":false,"prefix":1,"paths":0}`, `{}`} {
			a := c.do(refserver.Dispatch{Kind: k, RawArgs: json.RawMessage(args)})
			if k == wire.KindCreateTempDir || k == wire.KindCreateTempFile { // which need none
				c.expect(a.By == refserver.ByResult, "%s with args %s: expected an answer, got %s", k, args, tell(a))
				continue
			}
			c.failed(fmt.Sprintf("%s with args %s", k, args), a)
		}
	}
	c.exited(c.do(run("exit 4")), 4) // and goes on
}

func outcomeShapes(c *Case) {
	c.begin(refserver.Config{}) // refuses an outcome that does not fit, notes surplus
	file := c.write(c.path("dir", "file"), "content\n")
	dir, link := c.path("dir"), c.path("link")
	c.must(os.Symlink(file, link))
	temp := func(kind wire.Kind) refserver.Dispatch {
		return refserver.Dispatch{Kind: kind, Args: wire.TempArgs{Prefix: "conf-"}}
	}
	folder := func(kind wire.Kind, path string) refserver.Dispatch {
		yes := true
		return refserver.Dispatch{Kind: kind, Args: wire.DirArgs{Path: path, Recursive: &yes}}
	}
	for _, d := range []refserver.Dispatch{
		run("true"), {Kind: wire.KindExecStream, Args: wire.ExecArgs{Command: "true"}},
		on(wire.KindReadTextFile, file), {Kind: wire.KindReadTextLines, Args: wire.ReadLinesArgs{Path: file}}, on(wire.KindReadBinaryFile, file),
		put(wire.KindWriteFile, c.path("w"), []byte("x")), put(wire.KindWriteFileExclusive, c.path("wx"), []byte("x")),
		put(wire.KindAppendFile, c.path("w"), []byte("x")),
		on(wire.KindFileInfo, file), on(wire.KindListDir, dir), on(wire.KindCanonicalPath, link), on(wire.KindExists, file), on(wire.KindReadLink, link),
		folder(wire.KindCreateDir, c.path("new")), folder(wire.KindRemove, c.path("new")),
		temp(wire.KindCreateTempDir), temp(wire.KindCreateTempFile),
	} {
		if c.declares(d.Kind) {
			a := c.do(d)
			c.succeeded(string(d.Kind), a)
			if w, ok := a.Outcome.(wire.WriteOutcome); ok && (d.Kind == wire.KindCreateTempDir || d.Kind == wire.KindCreateTempFile) {
				c.must(os.RemoveAll(w.CanonicalPath))
			}
		}
	}
}

func execOutput(c *Case) {
	c.begin(refserver.Config{})
	for _, kind := range commands {
		text := "several 'lines' of \"text\" \\ $x `y` ü 𝄞\t\u2028<&>\n\n end\n"
		a := c.do(runAs(kind, "cat <<'EOF'\n"+text+"EOF\n"))
		c.exited(a, 0)
		c.expect(string(a.stdout) == text, "%s of a command of several lines: stdout is %q", kind, a.stdout)
		a = c.do(runAs(kind, `printf 'out \000\377'; printf err >&2; exit 7`))
		c.exited(a, 7)
		c.expect(string(a.stdout) == "out \x00\xff", "%s: stdout is %q, expected \"out \\x00\\xff\"", kind, a.stdout)
		c.expect(string(a.stderr) == "err", "%s: stderr is %q, expected \"err\"", kind, a.stderr)
		if e, ok := a.Outcome.(wire.ExecOutcome); ok && e.Truncated != nil {
			c.expect(!e.Truncated.Stdout && !e.Truncated.Stderr, "%s: output that came whole is said to be truncated", kind)
		}
	}
}

func execCodes(c *Case) {
	c.begin(refserver.Config{})
	for _, code := range []int64{0, 1, 2, 126, 127, 255} {
		c.exited(c.do(run(fmt.Sprintf("exit %d", code))), code)
	}
	a := c.do(run("kill -9 $$"))
	e, ok := a.Outcome.(wire.ExecOutcome)
	c.expect(!ok || e.ExitCode != 0, "a command that was killed is said to have succeeded: %s", tell(a))
	c.exited(c.do(run("definitely-not-a-program-7f3a")), 127)
}

func execCwd(c *Case) {
	c.begin(refserver.Config{})
	there := c.path("a b", "c")
	c.must(os.MkdirAll(there, 0o755))
	for _, kind := range commands {
		d := runAs(kind, "pwd -P")
		a := c.do(d)
		c.expect(string(a.stdout) == c.place.workspace+"\n", "%s without cwd: pwd says %q, expected the workspace root", kind, a.stdout)
		d.Cwd = there
		a = c.do(d)
		c.expect(string(a.stdout) == there+"\n", "%s with cwd %q: pwd says %q", kind, there, a.stdout)
	}
}

func execCwdMissing(c *Case) {
	c.begin(refserver.Config{})
	for _, kind := range commands {
		d := runAs(kind, "touch "+quote(c.path("ran")))
		d.Cwd = c.path("not", "there")
		c.failed(fmt.Sprintf("%s with a cwd that is not there", kind), c.do(d))
		c.expect(!exists(c.path("ran")), "%s with a cwd that is not there: the command ran all the same", kind)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func execShellEnv(c *Case) {
	c.begin(refserver.Config{})
	for _, kind := range commands {
		file := c.path("pid-" + string(kind))
		d := runAs(kind, `printf %s "$CONFORMANCE_V|$HOME|${PATH:+path}"; echo $$ > `+quote(file)+`; sleep 0.5`)
		d.ShellEnv = map[string]string{"CONFORMANCE_V": "a 'b' \"c\" $d\nnext", "HOME": "/elsewhere"}
		with := c.ask(d)
		c.pidIn(file)
		plain := run(`printf %s "$CONFORMANCE_V|$HOME"`)
		for _, other := range []string{"a command beside it", "the next command"} {
			a := c.do(plain)
			c.expect(!strings.Contains(string(a.stdout), "a 'b'") && !strings.Contains(string(a.stdout), "/elsewhere"), "%s saw the shellEnv of another instruction: %q", other, a.stdout)
			with.settled()
		}
		a := with.settled()
		c.expect(string(a.stdout) == "a 'b' \"c\" $d\nnext|/elsewhere|path", "%s: of its shellEnv and its PATH the command saw %q", kind, a.stdout)
	}
}

func execStdin(c *Case) {
	c.begin(refserver.Config{})
	d := run("cat; echo done")
	d.TimeoutMs = 10_000
	a := c.do(d)
	c.exited(a, 0)
	c.expect(string(a.stdout) == "done\n", "a command that reads its input: stdout is %q, expected \"done\\n\"", a.stdout)
}

func execLive(c *Case) {
	c.begin(refserver.Config{})
	first := make(chan struct{}, 16)
	a := c.ask(refserver.Dispatch{Kind: wire.KindExecStream, Args: wire.ExecArgs{Command: "echo now; sleep 4; echo later"},
		Deliver: func(wire.ChunkKind, []byte) error { first <- struct{}{}; return nil }})
	select {
	case <-first:
	case <-time.After(3 * time.Second):
		c.fail("the first line did not arrive within 3 s of a command that runs for 4")
	}
	select {
	case <-a.Done():
		c.fail("the first line came only when the command, which runs for 4 s, was over")
	default:
	}
	c.exited(a.settled(), 0)
}

func execParallel(c *Case) {
	c.begin(refserver.Config{})
	// Each waits for the file of the next: only all together can they end.
	var all []*asked
	for i := range 4 {
		all = append(all, c.ask(refserver.Dispatch{Kind: wire.KindExec, TimeoutMs: 15_000, Args: wire.ExecArgs{Command: fmt.Sprintf(
			"touch meet%d; while [ ! -e meet%d ]; do sleep 0.05; done", i, (i+1)%4)}}))
	}
	for _, a := range all {
		c.exited(a.settled(), 0)
	}
}
