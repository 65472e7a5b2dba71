package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// asked is one instruction under way, with its output.
type asked struct {
	*refserver.Call
	c    *Case
	mu   sync.Mutex
	out  map[wire.ChunkKind]*bytes.Buffer
	sent time.Time
}

// answer is how an instruction ended.
type answer struct {
	refserver.Settlement
	stdout, stderr, data []byte
	took                 time.Duration
}

// ask dispatches an instruction and collects its output.
func (c *Case) ask(d refserver.Dispatch) *asked {
	a, err := c.dispatch(d)
	if c.ctx.Err() != nil {
		c.stop("the row's time ran out before %s was asked", d.Kind)
	}
	c.must(err)
	return a
}

// dispatch is ask for hooks of the server, which must not end the row.
func (c *Case) dispatch(d refserver.Dispatch) (*asked, error) {
	a := &asked{c: c, out: map[wire.ChunkKind]*bytes.Buffer{}, sent: time.Now()}
	if d.Deliver == nil {
		d.Deliver = func(kind wire.ChunkKind, data []byte) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.out[kind] == nil {
				a.out[kind] = &bytes.Buffer{}
			}
			a.out[kind].Write(data)
			return nil
		}
	}
	call, err := c.server.Dispatch(c.ctx, c.device, d)
	a.Call = call
	return a, err
}

// askUnread is ask for output that nobody takes, so that no consumer can fall behind
// and have the server cancel the command (§4).
func (c *Case) askUnread(d refserver.Dispatch) *asked {
	call, err := c.server.Dispatch(c.ctx, c.device, d)
	c.must(err)
	return &asked{Call: call, c: c, sent: time.Now()}
}

func (a *asked) bytes(kind wire.ChunkKind) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out[kind] == nil {
		return nil
	}
	return bytes.Clone(a.out[kind].Bytes())
}

// settled waits for the books to close.
func (a *asked) settled() answer {
	how, err := a.Wait(a.c.ctx)
	if err != nil {
		a.c.stop("%s was never answered: %v", a.Kind(), err)
	}
	return answer{how, a.bytes(wire.ChunkStdout), a.bytes(wire.ChunkStderr), a.bytes(wire.ChunkData), time.Since(a.sent)}
}

// do asks and waits.
func (c *Case) do(d refserver.Dispatch) answer { return c.ask(d).settled() }

// run is an exec of a shell command.
func run(text string) refserver.Dispatch { return runAs(wire.KindExec, text) }

// live is an execStream of a shell command: its output comes while it runs, where
// that of an exec may wait for its end (§3.1).
func live(text string) refserver.Dispatch { return runAs(wire.KindExecStream, text) }

func runAs(kind wire.Kind, text string) refserver.Dispatch {
	return refserver.Dispatch{Kind: kind, Args: wire.ExecArgs{Command: text}}
}

// commands are the kinds that run one.
var commands = []wire.Kind{wire.KindExec, wire.KindExecStream}

// on is an instruction about one path.
func on(kind wire.Kind, path string) refserver.Dispatch {
	return refserver.Dispatch{Kind: kind, Args: wire.PathArgs{Path: path}}
}

// put is a write of content.
func put(kind wire.Kind, path string, content []byte) refserver.Dispatch {
	return refserver.Dispatch{Kind: kind, Args: wire.WriteArgs{Path: path}, Content: content}
}

// exited expects a command's own end.
func (c *Case) exited(a answer, code int64) bool {
	e, ok := a.Outcome.(wire.ExecOutcome)
	return c.expect(ok && e.ExitCode == code && a.By == refserver.ByResult, "expected exit code %d, got %s", code, tell(a))
}

// whole expects all of a command's output, or an outcome that owns to what is missing
// of it (§3.3).
func (c *Case) whole(a answer, stdout, stderr string) {
	var cut wire.Truncated
	if e, ok := a.Outcome.(wire.ExecOutcome); ok && e.Truncated != nil {
		cut = *e.Truncated
	}
	check := func(name, got, want string, cut bool) {
		if cut {
			c.expect(len(got) < len(want), "%s is said to be truncated, and all its %d bytes are there", name, len(got))
			return
		}
		c.expect(got == want, "%s: %d bytes came, not the %d that were written, or others", name, len(got), len(want))
	}
	check("stdout", string(a.stdout), stdout, cut.Stdout)
	check("stderr", string(a.stderr), stderr, cut.Stderr)
}

// failed expects a failure with one of the codes.
func (c *Case) failed(what string, a answer, codes ...wire.ErrorCode) bool {
	f, ok := a.Outcome.(wire.Failure)
	good := ok && a.By == refserver.ByResult && (len(codes) == 0 || slices.Contains(codes, f.Code))
	if good && f.Message == "" {
		c.fail("%s: the failure has no message", what)
	}
	return c.expect(good, "%s: expected a failure %v, got %s", what, codes, tell(a))
}

// done reports whether the device itself says that it did what was asked.
func (c *Case) done(a answer) bool {
	_, bad := a.Outcome.(wire.Failure)
	_, cancelled := a.Outcome.(wire.CancelledOutcome)
	return !bad && !cancelled && a.By == refserver.ByResult
}

// succeeded expects the device's own success.
func (c *Case) succeeded(what string, a answer) bool {
	return c.expect(c.done(a), "%s: expected success, got %s", what, tell(a))
}

// tell describes a settlement without its output.
func tell(a answer) string {
	word := fmt.Sprintf("%+v", a.Outcome)
	if len(word) > 300 {
		word = word[:300] + "…"
	}
	return fmt.Sprintf("%T%s (%s)", a.Outcome, word, a.By)
}
