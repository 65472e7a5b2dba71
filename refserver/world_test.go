package refserver_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

const root = "/home/u/project"

// epochs with distinct 16 bytes; the raw client knows them without decoding.
const (
	epochA = "01J8ZQ4T9X7M3K5N6P8R0S2V4W"
	epochB = "00000000000000000000000001"
)

var epochBytes = map[string][16]byte{
	epochA: {0x01, 0x92, 0x3f, 0x72, 0x69, 0x3d, 0x3d, 0x07, 0x32, 0xd4, 0xd6, 0x46, 0x01, 0x91, 0x6c, 0x9c},
	epochB: {15: 1},
}

// world is a server on an in-memory network, with one enrolled device.
type world struct {
	t      *testing.T
	s      *refserver.Server
	net    *memNet
	key    ed25519.PrivateKey
	device string
	served chan error

	mu      sync.Mutex
	clients []*client
}

// simulate runs fn in virtual time.
func simulate(t *testing.T, cfg refserver.Config, fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.close()
		fn(w)
	})
}

func newWorld(t *testing.T, cfg refserver.Config) *world {
	w := &world{t: t, s: refserver.New(cfg), net: newMemNet(), served: make(chan error, 1)}
	w.key = ed25519.NewKeyFromSeed(make([]byte, 32))
	w.device = w.addDevice(w.key)
	go func() { w.served <- w.s.Serve(w.net) }()
	return w
}

func (w *world) addDevice(key ed25519.PrivateKey) string {
	return w.s.AddDevice(refserver.DeviceRecord{Identity: "u", PublicKey: key.Public().(ed25519.PublicKey), OS: "linux", WorkspaceRoot: root})
}

func (w *world) close() {
	for _, c := range w.clients {
		_ = c.ws.CloseNow()
		<-c.gone
	}
	if err := w.s.Close(); err != nil {
		w.t.Errorf("Close: %v", err)
	}
	if err := <-w.served; !errors.Is(err, refserver.ErrClosed) {
		w.t.Errorf("Serve: %v, want ErrClosed", err)
	}
}

// memNet is a listener whose connections live in memory.
type memNet struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	last  *breaking // the device's end of the newest connection
}

// breaking is a connection that can be made to end within a write.
type breaking struct {
	net.Conn
	left int // bytes that still go out; below zero: no end
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left < 0 || len(p) < b.left {
		b.left -= min(len(p), max(b.left, 0))
		return b.Conn.Write(p)
	}
	n, _ := b.Conn.Write(p[:b.left])
	_ = b.Conn.Close()
	return n, net.ErrClosed
}

func newMemNet() *memNet { return &memNet{conns: make(chan net.Conn), done: make(chan struct{})} }

func (n *memNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *memNet) Close() error   { n.once.Do(func() { close(n.done) }); return nil }
func (n *memNet) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (n *memNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		n.last = &breaking{Conn: ours, left: -1}
		return n.last, nil
	case <-n.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *memNet) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}}
}

// client is a raw executor: it says what a test tells it to and nothing else.
type client struct {
	w      *world
	ws     *websocket.Conn
	frames chan wire.ServerFrame
	gone   chan struct{} // closed when reading ended
	err    error         // why; valid once gone
	gen    wire.Gen
	key    ed25519.PrivateKey
	device string
}

func (w *world) dial() *client {
	w.t.Helper()
	c, _, err := w.tryDial(wire.WSPath)
	if err != nil {
		w.t.Fatalf("dial: %v", err)
	}
	return c
}

func (w *world) tryDial(path string) (*client, int, error) {
	ws, resp, err := websocket.Dial(w.t.Context(), "ws://refserver.invalid"+path, &websocket.DialOptions{HTTPClient: w.net.http()})
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	if err != nil {
		return nil, status, err
	}
	ws.SetReadLimit(2 << 20)
	c := &client{w: w, ws: ws, frames: make(chan wire.ServerFrame, 1<<14), gone: make(chan struct{}), key: w.key, device: w.device}
	w.mu.Lock()
	w.clients = append(w.clients, c)
	w.mu.Unlock()
	go c.read()
	return c, status, nil
}

func (c *client) read() {
	defer close(c.gone)
	defer close(c.frames)
	for {
		_, raw, err := c.ws.Read(context.Background())
		if err != nil {
			c.err = err
			return
		}
		f, err := wire.DecodeServer(raw)
		if err != nil {
			c.w.t.Errorf("server frame %s: %v", raw, err)
			return
		}
		c.frames <- f
	}
}

// connect is a client whose handshake is complete and that has sent generationAck.
func (w *world) connect(epoch string) *client {
	w.t.Helper()
	c := w.dial()
	c.handshake(epoch)
	c.send(&wire.GenerationAck{Gen: c.gen})
	synctest.Wait()
	return c
}

func (c *client) handshake(epoch string) *wire.HelloAck {
	c.w.t.Helper()
	ch := expect[*wire.Challenge](c)
	c.send(c.hello(ch.Nonce, epoch))
	ack := expect[*wire.HelloAck](c)
	c.gen = ack.Gen
	return ack
}

// hello signs with the client's own layout of the signed bytes.
func (c *client) hello(nonce, epoch string) *wire.Hello {
	e := epochBytes[epoch]
	b := []byte("sema.device.hello.v1")
	for _, s := range []string{nonce, c.device} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	b = append(append(b, e[:]...), 0, 0, 0, 1)
	var supports []string
	for _, k := range wire.Kinds() {
		if k != wire.KindStatBatch {
			supports = append(supports, string(k))
		}
	}
	return &wire.Hello{ProtocolVersion: 1, DeviceID: c.device, Epoch: epoch,
		SignatureB64: base64.StdEncoding.EncodeToString(ed25519.Sign(c.key, b)),
		Platform:     wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "test"}, WorkspaceRoot: root,
		PathFlavor: "posix", Supports: supports}
}

func (c *client) send(f wire.DeviceFrame) {
	c.w.t.Helper()
	raw, err := wire.AppendDevice(nil, f)
	if err != nil {
		c.w.t.Fatalf("encode %T: %v", f, err)
	}
	c.text(string(raw))
}

func (c *client) text(raw string) { c.message(websocket.MessageText, []byte(raw)) }

func (c *client) message(typ websocket.MessageType, raw []byte) {
	c.w.t.Helper()
	if err := c.ws.Write(c.w.t.Context(), typ, raw); err != nil {
		c.w.t.Fatalf("write: %v", err)
	}
}

func (c *client) stdout(id string, seq int64, data string) {
	c.send(&wire.Chunk{Gen: c.gen, InstructionID: id, StreamSeq: seq, Kind: wire.ChunkStdout, Data: []byte(data)})
}

func (c *client) exit(id string, seq, code int64) {
	c.send(&wire.Chunk{Gen: c.gen, InstructionID: id, StreamSeq: seq, Kind: wire.ChunkExit, ExitCode: code})
}

func (c *client) result(id string, o wire.Outcome) {
	c.send(&wire.Result{Gen: c.gen, InstructionID: id, DeviceSeq: 1, Outcome: o})
}

// expect takes the next frame, which must be of type F.
func expect[F wire.ServerFrame](c *client) F {
	c.w.t.Helper()
	var zero F
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	select {
	case f, ok := <-c.frames:
		if !ok {
			c.w.t.Fatalf("the connection ended (%v); want a %T", c.err, zero)
		}
		got, ok := f.(F)
		if !ok {
			c.w.t.Fatalf("got %T %+v, want a %T", f, f, zero)
		}
		return got
	case <-timer.C:
		c.w.t.Fatalf("no frame within an hour, want a %T", zero)
	}
	return zero
}

// silent checks that the server has nothing to say now.
func (c *client) silent() {
	c.w.t.Helper()
	synctest.Wait()
	select {
	case f, ok := <-c.frames:
		if ok {
			c.w.t.Fatalf("unexpected %T %+v", f, f)
		}
	default:
	}
}

// ended waits for the end of the connection and returns the close code.
func (c *client) ended() websocket.StatusCode {
	c.w.t.Helper()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	select {
	case <-c.gone:
	case <-timer.C:
		c.w.t.Fatal("the connection is still open after an hour")
	}
	return websocket.CloseStatus(c.err)
}

// isOpen checks that the connection survived.
func (c *client) isOpen() {
	c.w.t.Helper()
	synctest.Wait()
	select {
	case <-c.gone:
		c.w.t.Fatalf("the connection ended: %v", c.err)
	default:
	}
}

// dispatch asks for an exec.
func (w *world) dispatch(what refserver.Dispatch) *refserver.Call {
	w.t.Helper()
	if what.Kind == "" {
		what.Kind, what.Args = wire.KindExec, wire.ExecArgs{Command: "true"}
	}
	call, err := w.s.Dispatch(w.t.Context(), w.device, what)
	if err != nil {
		w.t.Fatalf("Dispatch: %v", err)
	}
	synctest.Wait()
	return call
}

func (w *world) settled(call *refserver.Call) refserver.Settlement {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	st, err := call.Wait(ctx)
	if err != nil {
		w.t.Fatalf("Wait: %v", err)
	}
	return st
}

// settledBy waits for the settlement and checks what closed the books.
func (w *world) settledBy(call *refserver.Call, by refserver.SettledBy) refserver.Settlement {
	w.t.Helper()
	st := w.settled(call)
	if st.By != by {
		w.t.Fatalf("settled by %s (%+v), want %s", st.By, st.Outcome, by)
	}
	if f, failed := st.Outcome.(wire.Failure); failed && by != refserver.ByResult && by != refserver.ByNeverStarted {
		if f.Code != wire.CodeOutcomeUnknown || st.State != wire.StateTerminal {
			w.t.Fatalf("written off as %s in state %s, want outcome_unknown, terminal", f.Code, st.State)
		}
	}
	return st
}

// violated checks the executor's record, reason by reason, and the audit's
// (with those excused) that follow.
func (w *world) violated(want ...refserver.Reason) {
	w.t.Helper()
	synctest.Wait()
	var got []refserver.Reason
	for _, v := range w.s.Violations() {
		got = append(got, v.Reason)
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("violations %v, want %v: %v", got, want, w.s.Violations())
	}
}

// audited checks that the audit's last entry has this reason.
func (w *world) audited(want refserver.Reason) refserver.Violation {
	w.t.Helper()
	synctest.Wait()
	all := w.s.Audit()
	if len(all) == 0 || all[len(all)-1].Reason != want {
		w.t.Fatalf("audit %v, want %s last", all, want)
	}
	return all[len(all)-1]
}
