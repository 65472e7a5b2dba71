package link_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

const root = "/home/u/project"

// world is one device's link against the reference server, in virtual time.
type world struct {
	t      *testing.T
	server *refserver.Server
	net    *memNet
	work   *work
	outbox *outbox.Outbox
	device string
	link   *link.Link
	cfg    link.Config
	start  time.Time
	ctx    context.Context
	stop   context.CancelFunc
	ended  chan error
	served chan error

	mu     sync.Mutex
	states []entered
	frames []traced
	skew   time.Duration // of the wall clock
}

type entered struct {
	at time.Duration
	link.State
}

type traced struct {
	at  time.Duration
	dir refserver.Direction
	refserver.Frame
}

// network dials the world's server; discovery is asked over HTTP, as in life.
type network struct {
	link.Dialer
	find func(context.Context) (string, error)
}

func (n *network) Discover(ctx context.Context) (string, error) { return n.find(ctx) }
func (n *network) Dial(ctx context.Context, path string) (link.Socket, error) {
	return n.DialPath(ctx, path)
}

func dialer(n *memNet) link.Dialer {
	return link.Dialer{Server: &url.URL{Scheme: "http", Host: "refserver.invalid"}, Transport: &http.Transport{DialContext: n.dial}}
}

// discover asks the reference server for its path.
func discover(n *memNet) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		client := &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://refserver.invalid/v1/capabilities", nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var answer struct {
			DeviceExecutor json.RawMessage `json:"deviceExecutor"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return "", err
		}
		if string(answer.DeviceExecutor) == "false" {
			return "", link.ErrLaneOff
		}
		var lane struct {
			WSPath string `json:"wsPath"`
		}
		if err := json.Unmarshal(answer.DeviceExecutor, &lane); err != nil {
			return "", err
		}
		return lane.WSPath, nil
	}
}

func identity(device string, seed byte) handshake.Identity {
	key, err := handshake.KeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	if err != nil {
		panic(err)
	}
	epoch, err := handshake.NewEpoch(time.Unix(1700000000, 0), bytes.NewReader(bytes.Repeat([]byte{seed}, 16)))
	if err != nil {
		panic(err)
	}
	return handshake.Identity{DeviceID: device, Key: key, Epoch: epoch, WorkspaceRoot: root,
		Platform: wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "test"}, Supports: wire.Kinds()}
}

func addDevice(s *refserver.Server, seed byte) string {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
	return s.AddDevice(refserver.DeviceRecord{Identity: "u", PublicKey: key.Public().(ed25519.PublicKey), OS: "linux", WorkspaceRoot: root})
}

// options change a world before it begins.
type options struct {
	server refserver.Config
	faults refserver.Faults // from the first connection on
	link   func(w *world, c *link.Config)
	silent bool // the link is not started
}

// simulate runs fn in virtual time. Afterwards every goroutine must be gone.
func simulate(t *testing.T, o options, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: newMemNet(), start: time.Now(), ended: make(chan error, 1), served: make(chan error, 1)}
		o.server.Trace = func(dir refserver.Direction, f refserver.Frame, _ []byte) {
			w.mu.Lock()
			w.frames = append(w.frames, traced{time.Since(w.start), dir, f})
			w.mu.Unlock()
		}
		w.server = refserver.New(o.server)
		w.server.SetFaults(o.faults)
		w.device = addDevice(w.server, 1)
		go func() { w.served <- w.server.Serve(w.net) }()
		w.outbox = outbox.New(outbox.Config{})
		w.work = &work{outbox: w.outbox, seen: map[string]bool{}, lanes: map[string]*outbox.Lane{}, changed: make(chan struct{}, 1)}
		w.cfg = link.Config{
			Network:  &network{Dialer: dialer(w.net), find: discover(w.net)},
			Identity: identity(w.device, 1),
			Outbox:   w.outbox,
			Work:     w.work,
			Now:      w.now,
			Random:   rand.NewChaCha8([32]byte{1}),
			Log:      slog.New(slog.DiscardHandler),
			Drain:    10 * time.Second,
			OnState: func(s link.State) {
				w.mu.Lock()
				w.states = append(w.states, entered{time.Since(w.start), s})
				w.mu.Unlock()
			},
		}
		if o.link != nil {
			o.link(w, &w.cfg)
		}
		w.link = link.New(w.cfg)
		ctx, cancel := context.WithCancel(t.Context())
		w.stop = cancel
		defer w.close()
		w.ctx = ctx
		if o.silent {
			w.ended <- nil
		} else {
			go func() { w.ended <- w.link.Run(ctx) }()
		}
		fn(t, w)
	})
}

func (w *world) close() {
	w.stop()
	select {
	case <-w.ended:
	case <-time.After(time.Minute):
		w.t.Error("the link did not end within a minute of being stopped")
	}
	if err := w.server.Close(); err != nil {
		w.t.Error(err)
	}
	w.net.cutAll()
	<-w.served
	if w.t.Failed() {
		for _, s := range w.states {
			w.t.Logf("%10v %s (%s) wait %v err %v", s.at, s.Phase, s.Cause, s.Wait, s.Err)
		}
	}
}

// run starts the link of a silent world.
func (w *world) run() <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.link.Run(w.ctx) }()
	return done
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.skew)
}

// active waits until the server may dispatch.
func (w *world) active() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	if err := w.server.WaitActive(ctx, w.device); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// wait lets virtual time pass.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// end waits for Run's answer.
func (w *world) end(within time.Duration) error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		w.ended <- err
		return err
	case <-time.After(within):
		w.t.Fatalf("the link did not end within %v", within)
		return nil
	}
}

func (w *world) history() []entered {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.states)
}

// entries returns the changes to a phase.
func (w *world) entries(p link.Phase) []entered {
	var out []entered
	for _, s := range w.history() {
		if s.Phase == p {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) last() entered {
	h := w.history()
	return h[len(h)-1]
}

// sent returns what the device sent of one type.
func (w *world) sent(kind wire.DeviceFrameType) []traced {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []traced
	for _, f := range w.frames {
		if f.dir == refserver.FromDevice && f.Type == string(kind) {
			out = append(out, f)
		}
	}
	return out
}

func (w *world) innocent() {
	w.t.Helper()
	for _, v := range w.server.Violations() {
		w.t.Errorf("the server objects: %v", v)
	}
}

// exec gives the device an instruction.
func (w *world) exec() *refserver.Call {
	w.t.Helper()
	call, err := w.server.Dispatch(w.t.Context(), w.device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: "x"}, TimeoutMs: 24 * 3600 * 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return call
}

// succeeds has a command end, and the server hear of it.
func (w *world) succeeds(call *refserver.Call) {
	w.t.Helper()
	w.work.done(call.ID())
	if s := w.settled(call); s.Outcome != wire.Outcome(wire.ExecOutcome{}) {
		w.t.Errorf("settled %+v", s)
	}
}

// immortal gives the device a command that cannot be ended, and puts a server in the
// old one's place that knows nothing of it.
func (w *world) immortal() *refserver.Call {
	w.t.Helper()
	w.active()
	call := w.exec()
	w.work.endTime = time.Hour
	w.server.Restart()
	w.wait(15 * time.Second)
	return call
}

// settled waits for a call's end.
func (w *world) settled(call *refserver.Call) refserver.Settlement {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Minute)
	defer cancel()
	s, err := call.Wait(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// work stands in for the dispatcher: it does nothing until a test says so.
type work struct {
	outbox  *outbox.Outbox
	endTime time.Duration // how long End takes; longer than its context: nothing dies
	receive func()        // called first by Instruct, if set

	mu       sync.Mutex
	inflight []string
	seen     map[string]bool
	lanes    map[string]*outbox.Lane
	max      int
	leaving  bool
	aborted  bool
	cut      int
	cancels  []string
	ended    []string
	changed  chan struct{}
}

func (w *work) Instruct(in *wire.Instruction) {
	if w.receive != nil {
		w.receive()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[in.InstructionID] {
		return
	}
	w.seen[in.InstructionID] = true
	lane := w.outbox.Open(in.InstructionID)
	if w.leaving {
		lane.Finish(wire.Failf(wire.CodeTargetUnavailable, "leaving"))
		return
	}
	w.lanes[in.InstructionID] = lane
	w.inflight = append(w.inflight, in.InstructionID)
}

func (w *work) Payload(*wire.Payload) {}

func (w *work) Cancel(id string) {
	w.mu.Lock()
	w.cancels = append(w.cancels, id)
	w.mu.Unlock()
}

func (w *work) Disconnected() {
	w.mu.Lock()
	w.cut++
	w.mu.Unlock()
}

func (w *work) cuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func (w *work) SetMaxInflight(n int) {
	w.mu.Lock()
	w.max = n
	w.mu.Unlock()
}

func (w *work) Inflight() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.inflight)
}

func (w *work) Seen(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[id]
}

func (w *work) Answer(id string, o wire.Outcome) {
	w.mu.Lock()
	w.seen[id] = true
	w.mu.Unlock()
	w.outbox.Open(id).Finish(o)
}

func (w *work) End(ctx context.Context, ids []string) []string {
	w.mu.Lock()
	w.ended = append(w.ended, ids...)
	w.mu.Unlock()
	if w.endTime > 0 {
		select {
		case <-time.After(w.endTime):
		case <-ctx.Done():
			return ids
		}
	}
	for _, id := range ids {
		w.remove(id)
	}
	return nil
}

func (w *work) Leave() {
	w.mu.Lock()
	w.leaving = true
	w.mu.Unlock()
}

func (w *work) Abort(context.Context) error {
	w.mu.Lock()
	w.aborted = true
	ids := slices.Clone(w.inflight)
	w.mu.Unlock()
	for _, id := range ids {
		w.finish(id, wire.Failf(wire.CodeAborted, "drain over"))
	}
	return nil
}

func (w *work) Wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		n := len(w.inflight)
		w.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *work) remove(id string) *outbox.Lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.inflight, id); i >= 0 {
		w.inflight = slices.Delete(w.inflight, i, i+1)
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
	return w.lanes[id]
}

func (w *work) lane(id string) *outbox.Lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lanes[id]
}

// finish answers an instruction.
func (w *work) finish(id string, o wire.Outcome) {
	lane := w.lane(id)
	lane.Finish(o)
	w.remove(id)
}

func (w *work) done(id string) { w.finish(id, wire.ExecOutcome{}) }

// say appends output without waiting for room longer than the test lives.
func (w *work) say(ctx context.Context, id string, n int) error {
	lane := w.lane(id)
	data := bytes.Repeat([]byte("x"), 64<<10)
	for n > 0 {
		part := data[:min(n, len(data))]
		if err := lane.Append(ctx, wire.ChunkStdout, part); err != nil {
			return err
		}
		n -= len(part)
	}
	return nil
}

func causes(es []entered) []link.Cause {
	out := make([]link.Cause, len(es))
	for i, e := range es {
		out[i] = e.Cause
	}
	return out
}
