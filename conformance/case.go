package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// patience is how long something may take that is only waited for, on a busy
// machine. What the guide bounds has bounds of its own.
const patience = 20 * time.Second

// credential is the user's, of every row.
const credential = "crd_4fT9-conformance-kW2x"

// Case is one row at work: its folder, its server, its executor.
type Case struct {
	ctx   context.Context
	cfg   *Config
	row   *Row
	dir   string
	place place

	server *refserver.Server
	http   *http.Server // nil unless the row watches the HTTP calls
	served sync.WaitGroup
	trace  *trace
	calls  *httpLog

	device string
	exec   *process
	procs  []*process
	// own are the files that the row made, or had the executor write.
	own map[string]bool
	// known says of processes what they are, for findings.
	known map[int]string
	// notes are what a row could not judge of its promise here.
	notes []string
	// tolerated are the server's objections that the row provokes on purpose.
	tolerated []refserver.Reason
	findings  []string
	verdict   Verdict
}

// over ends a row from inside; see Case.stop and Case.skip.
type over struct{}

// fail records what is wrong and goes on.
func (c *Case) fail(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
	c.verdict = Fail
}

// stop records what is wrong and ends the row.
func (c *Case) stop(format string, args ...any) {
	c.fail(format, args...)
	panic(over{})
}

// skip ends the row as not applicable.
func (c *Case) skip(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
	c.verdict = NotApplicable
	panic(over{})
}

// note says what of the promise is not judged here, and goes on.
func (c *Case) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// must ends the row on an error of the suite's own doing.
func (c *Case) must(err error) {
	if err != nil {
		c.stop("the suite itself: %v", err)
	}
}

// expect records a finding unless it holds.
func (c *Case) expect(holds bool, format string, args ...any) bool {
	if !holds {
		c.fail(format, args...)
	}
	return holds
}

// open makes the row's server. Members of cfg that are zero are the guide's.
func (c *Case) open(cfg refserver.Config) {
	cfg.Trace = c.trace.see
	l, err := net.Listen("tcp", "127.0.0.1:0")
	c.must(err)
	c.server = refserver.New(cfg)
	c.place.server = "http://" + l.Addr().String()
	if c.calls == nil {
		c.served.Go(func() { _ = c.server.Serve(l) }) // ErrClosed, at the end of the row
		return
	}
	c.http = &http.Server{Handler: c.calls.over(c.server)}
	c.served.Go(func() { _ = c.http.Serve(l) })
}

// watchHTTP makes the server note its HTTP calls; before open.
func (c *Case) watchHTTP() *httpLog {
	c.calls = &httpLog{}
	return c.calls
}

// enroll runs the enrolling line; it has to succeed.
func (c *Case) enroll() {
	x := c.runEnroll(2 * patience)
	if x.code() != 0 {
		c.stop("the enrolling command ended with code %d: %s", x.code(), strings.Join(x.printed(3), " / "))
	}
	c.adopt()
}

// runEnroll runs the enrolling line to its end.
func (c *Case) runEnroll(limit time.Duration) *process {
	x := c.launch(c.cfg.Enroll, true)
	if !x.within(limit) {
		c.stop("the enrolling command did not end within %v", limit)
	}
	return x
}

// adopt takes the one device that the server registered for the row's device.
func (c *Case) adopt() {
	devices := c.server.Devices()
	if len(devices) != 1 {
		c.stop("the enrolling command left %d devices registered, not 1", len(devices))
	}
	c.device = devices[0]
}

func (c *Case) launch(line string, enrolling bool) *process {
	x, err := launch(c.place, line, c.dir, enrolling)
	c.must(err)
	c.procs = append(c.procs, x)
	return x
}

// serve starts the executor; it need not have connected yet.
func (c *Case) serve() *process {
	c.exec = c.launch(c.cfg.Serve, false)
	return c.exec
}

// begin opens a server, enrolls, starts the executor and waits until it is
// active. Rows whose kinds are not declared end here.
func (c *Case) begin(cfg refserver.Config) {
	c.open(cfg)
	c.enroll()
	c.serve()
	c.active()
	for _, k := range c.row.Needs {
		if !c.declares(k) {
			c.skip("the executor does not declare %s", k)
		}
	}
}

func (c *Case) declares(k wire.Kind) bool {
	return slices.Contains(c.server.State(c.device).Supports, string(k))
}

// active waits until instructions may be dispatched.
func (c *Case) active() {
	c.wait("the executor sends a hello that is accepted, and generationAck", true, func(s refserver.DeviceState) bool { return s.Active })
}

// again waits until the executor is active on a later connection than the n-th.
func (c *Case) again(n int) {
	c.wait("the executor makes a new connection, up to generationAck", true, func(s refserver.DeviceState) bool {
		return s.Active && s.Connections > n
	})
}

// gone waits until the server sees the connection closed.
func (c *Case) gone() {
	c.wait("the connection ends", false, func(s refserver.DeviceState) bool { return !s.Connected })
}

// wait waits for the executor to come into a state; for one that only a living
// process can come into, not longer than the process lives.
func (c *Case) wait(what string, living bool, holds func(refserver.DeviceState) bool) {
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	if x := c.exec; living {
		go func() {
			select {
			case <-x.done:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	if err := c.server.WaitFor(ctx, c.device, holds); err != nil {
		switch {
		case c.ctx.Err() != nil:
			c.stop("expected that %s; this row's time ran out before", what)
		case living && c.exec.ended():
			c.stop("expected that %s; but the executor ended, with code %d", what, c.exec.code())
		}
		c.stop("expected that %s; it was not so within %v", what, patience)
	}
}

func (c *Case) state() refserver.DeviceState { return c.server.State(c.device) }

// drop cuts the connection and waits until the executor is back and active.
func (c *Case) drop() {
	n := c.state().Connections
	c.server.Drop(c.device)
	c.again(n)
}

// eventually polls until a condition holds.
func (c *Case) eventually(within time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) || c.ctx.Err() != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
	return true
}

// rest watches for a while that nothing happens which must not.
func (c *Case) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// seen waits until a message of the executor's went by, and returns the first.
func (c *Case) seen(what string, wanted func(*message) bool) message {
	var got []message
	over := func() bool { got = c.trace.messages(wanted); return len(got) > 0 || c.exec.ended() }
	switch {
	case !c.eventually(patience, over):
		c.stop("the executor did not send %s within %v", what, patience)
	case len(got) == 0 && !c.eventually(time.Second, func() bool { got = c.trace.messages(wanted); return len(got) > 0 }):
		c.stop("the executor ended, with code %d, without sending %s", c.exec.code(), what)
	}
	return got[0]
}

// conn is the number of the connection now in use.
func (c *Case) conn() int64 {
	acks := c.trace.messages(fromDevice(wire.TypeGenerationAck))
	if len(acks) == 0 {
		return 0
	}
	return acks[len(acks)-1].Conn
}

// path is a place in the workspace.
func (c *Case) path(elem ...string) string {
	return filepath.Join(append([]string{c.place.workspace}, elem...)...)
}

// write makes a file in the workspace, and its folder, by the suite's own hand.
func (c *Case) write(path, content string) string {
	c.must(os.MkdirAll(filepath.Dir(path), 0o755))
	c.must(os.WriteFile(path, []byte(content), 0o644))
	c.own[path] = true
	return path
}

// read is the content of a file, "" if it is not there.
func (c *Case) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		c.must(err)
	}
	return string(b)
}

// pidIn waits until a command has written its process id into a file.
func (c *Case) pidIn(path string) int {
	var pid int
	if !c.eventually(patience, func() bool {
		text, whole := strings.CutSuffix(c.read(path), "\n")
		var err error
		pid, err = strconv.Atoi(text)
		return whole && err == nil
	}) {
		c.stop("the command, which begins by writing %s, did not start within %v", filepath.Base(path), patience)
	}
	return pid
}

// dead expects processes to be gone now: what the executor says about them has
// been said already.
func (c *Case) dead(when string, pids ...int) {
	for _, pid := range pids {
		c.expect(!alive(pid), "%s, and process %s of the command is alive", when, c.processName(pid))
	}
}

// processName is a process's number, and what it is if that is known.
func (c *Case) processName(pid int) string {
	if what := c.known[pid]; what != "" {
		return fmt.Sprintf("%d, %s,", pid, what)
	}
	return strconv.Itoa(pid)
}

// tolerate lets the server object for these reasons.
func (c *Case) tolerate(reasons ...refserver.Reason) { c.tolerated = append(c.tolerated, reasons...) }

// judge is a row's whole life.
func (c *Case) judge() {
	defer c.close()
	defer func() {
		switch p := recover(); p.(type) {
		case nil, over:
		default:
			c.fail("the suite itself: %v", p)
		}
		if c.verdict == NotApplicable || c.server == nil {
			return
		}
		for _, typ := range c.trace.notText() {
			c.fail("a text message (%s) is not UTF-8, for which a server may end the connection (§2)", typ)
		}
		for _, v := range c.server.Violations() {
			if !slices.Contains(c.tolerated, v.Reason) {
				c.fail("%s", objection(v))
			}
		}
	}()
	c.row.run(c)
}

// close ends all that the row started.
func (c *Case) close() {
	var ending sync.WaitGroup
	for _, x := range c.procs {
		ending.Go(x.finish)
	}
	ending.Wait()
	sweep(markOf(c.dir))
	for pid := range c.known { // what has no mark any more
		if strings.HasPrefix(commandLine(pid), "sleep\x00") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, x := range c.procs {
		x.out.close()
	}
	if c.server == nil {
		return
	}
	if c.http != nil {
		_ = c.http.Close()
	}
	_ = c.server.Close()
	c.served.Wait()
}

// inject sends a frame that the server's books do not know of.
func (c *Case) inject(f wire.ServerFrame) {
	b, err := wire.AppendServer(nil, f)
	c.must(err)
	if !c.server.Inject(c.device, b) {
		c.stop("the executor has left the connection on which the next frame was to be sent to it")
	}
}

// jsonText is a text as JSON.
func jsonText(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}
