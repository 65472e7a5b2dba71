package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
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
		c.stop("this row's time ran out before %s was sent", d.Kind)
	}
	if err != nil {
		c.stop("%s could not be sent to the executor: %v", d.Kind, err)
	}
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
	if w, ok := d.Args.(wire.WriteArgs); ok {
		c.own[w.Path] = true
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
	ctx, cancel := context.WithCancel(a.c.ctx)
	defer cancel()
	x := a.c.exec
	if x != nil && !x.ended() { // nobody answers for an executor that ends meanwhile
		go func() {
			select {
			case <-x.done:
				select {
				case <-time.After(2 * time.Second): // what it said last may be on its way
					cancel()
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}()
	}
	how, err := a.Wait(ctx)
	switch {
	case err == nil:
	case x != nil && x.ended():
		a.c.stop("%s %s was not answered: the executor ended, with code %d", a.Kind(), shorten(a.ID()), x.code())
	default:
		a.c.stop("%s %s was not answered within the %v that this row has", a.Kind(), shorten(a.ID()), a.c.row.patience())
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
			c.expect(len(got) < len(want), "the outcome says that %s is truncated, and all its %d bytes came", name, len(got))
			return
		}
		c.expect(got == want, "%s", differs(name, got, want))
	}
	check("stdout", string(a.stdout), stdout, cut.Stdout)
	check("stderr", string(a.stderr), stderr, cut.Stderr)
}

// differs says how what came is not what was due.
func differs(name, got, want string) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%s: %d bytes came of %d that are due, and the outcome does not say that it is truncated", name, len(got), len(want))
	}
	at := 0
	for at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("%s: all %d bytes came, but the one at %d is another", name, len(want), at)
}

// failed expects a failure with one of the codes.
func (c *Case) failed(what string, a answer, codes ...wire.ErrorCode) bool {
	f, ok := a.Outcome.(wire.Failure)
	good := ok && a.By == refserver.ByResult && (len(codes) == 0 || slices.Contains(codes, f.Code))
	if good && f.Message == "" {
		c.fail("%s: the failure's message is empty; §3.3 requires one, as the model is shown it", what)
	}
	return c.expect(good, "%s: expected a failure%s, got %s", what, withCodes(codes), tell(a))
}

// withCodes says which codes a failure may have.
func withCodes(codes []wire.ErrorCode) string {
	var words []string
	for _, code := range codes {
		words = append(words, string(code))
	}
	if len(words) == 0 {
		return ", with any errorCode"
	}
	return " with errorCode " + strings.Join(words, " or ")
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
