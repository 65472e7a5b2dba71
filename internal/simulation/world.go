package simulation

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/logind"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// Report is what came of playing a schedule.
type Report struct {
	Failures []string // what did not hold; none: all is well
	Trace    []string // every frame, start, exit, change of state and settlement, in order
	Lives    int      // of the executor
	Frames   int
	Starts   int // of commands
	// Settled counts instructions by how they were settled.
	Settled map[refserver.SettledBy]int
}

// ground is where a schedule is played.
type ground interface {
	// executor adds to the configuration what commands and files are here.
	executor(*executor.Config)
	// folder is where files are read and written.
	folder() string
	// written returns a file and how often it was written.
	written(path string) ([]byte, int)
	// prepare makes a file that is going to be read.
	prepare(path string, content []byte) error
	// settle waits until nothing more happens at this moment, where that can be known.
	settle()
	// slack is how much longer things may take than they have to.
	slack() time.Duration
	// end ends what still runs, and returns what did not hold.
	end(*judge)
}

// World is one run of a schedule: a server, a network, and one life of the executor
// after another.
//
// The server's objections count, with one exception: an answer to a cancel or at a
// timeout that comes too late is excused for instructions that were given while the
// faults lasted, because the network may have kept it away.
type World struct {
	s      Schedule
	ground ground
	judge  *judge
	net    *network
	server *refserver.Server
	device string
	key    handshake.PrivateKey
	begin  time.Time
	ctx    context.Context
	random *rand.ChaCha8
	// How the executor reaches the server: the network in memory, unless changed.
	listener net.Listener
	change   func(*executor.Config)
	// longest is how long the server may hold an instruction: the longest timeout, its
	// grace, and a slow consumer.
	longest time.Duration
	calls   sync.WaitGroup
	asleep  atomic.Int32 // sleeps under way

	mu     sync.Mutex
	faults faults
	skew   time.Duration
	aged   time.Duration
	sleeps chan bool
	later  []*later

	// The present executor; of the goroutine that plays.
	x     *executor.Executor
	ended chan error
	asked int // instructions given so far
}

// faults is what the server does wrong for now.
type faults struct {
	refserver.Faults
	repeat   int
	withhold int64
	unlist   bool
	brusque  bool // the connection is gone as soon as a bye is written
}

// later is the end of something that lasts.
type later struct {
	timer *time.Timer
	end   func()
}

func newWorld(ctx context.Context, s Schedule, newGround func(*judge) ground) *World {
	w := newDevice(ctx, s, newGround)
	w.join(refserver.New(s.server(w.judge.hear)))
	return w
}

// server is the configuration of the schedule's server.
func (s *Schedule) server(trace func(refserver.Direction, refserver.Frame, []byte)) refserver.Config {
	c := s.Config
	return refserver.Config{
		Rand: rand.NewChaCha8(seedBytes(s.Seed)), Trace: trace,
		Heartbeat: c.Heartbeat, ReconnectGrace: c.ReconnectGrace, Lease: c.Lease, KeepLease: c.KeepLease,
		MaxInflight: c.MaxInflight, FirstGeneration: c.FirstGeneration, PayloadPart: c.PayloadPart,
		// Who consumes slowly here has chunks acknowledged as he takes them. For the
		// others a pause of a busy machine must not cost the command its life.
		PendingBytes: 1 << 30, PendingEntries: 1 << 24,
	}
}

// seedBytes makes a seed of a seed.
func seedBytes(seed uint64) (b [32]byte) {
	binary.LittleEndian.PutUint64(b[:], seed)
	return b
}

// newDevice is a world that has yet to join a server.
func newDevice(ctx context.Context, s Schedule, newGround func(*judge) ground) *World {
	c := s.Config
	b := bounds{
		lane:   cmp.Or(c.LaneBytes, outbox.DefaultLaneBytes),
		chunks: cmp.Or(c.LaneChunks, outbox.DefaultLaneChunks),
		total:  cmp.Or(c.TotalBytes, outbox.DefaultTotalBytes),
	}
	w := &World{s: s, judge: newJudge(b), net: newNetwork(s.Seed), begin: time.Now(), ctx: ctx,
		change: func(*executor.Config) {}, longest: 5 * time.Minute}
	w.listener = w.net
	w.random = rand.NewChaCha8(seedBytes(s.Seed))
	w.ground = newGround(w.judge)
	return w
}

// join registers the device.
func (w *World) join(server *refserver.Server) {
	seed := seedBytes(w.s.Seed)
	private := ed25519.NewKeyFromSeed(seed[:])
	key, err := handshake.KeyFromSeed(seed[:])
	if err != nil {
		panic(err) // a seed of the right length is a key
	}
	w.key, w.server = key, server
	w.device = server.AddDevice(refserver.DeviceRecord{Identity: "user", OS: "linux",
		PublicKey: private.Public().(ed25519.PublicKey), WorkspaceRoot: w.ground.folder()})
}

// play runs the schedule to its end and some way beyond, when all is calm.
func (w *World) play() *Report {
	return w.playWith(func() {
		for _, e := range w.s.Events {
			time.Sleep(time.Until(w.begin.Add(e.At)))
			w.judge.Note("event %s", e.Do)
			w.apply(e)
			w.ground.settle()
			w.judge.look()
			if w.hasEnded() {
				break
			}
		}
	})
}

// playWith is play with something else in the schedule's place.
func (w *World) playWith(act func()) *Report {
	var served sync.WaitGroup
	served.Go(func() { _ = w.server.Serve(w.listener) })
	w.start()
	act()
	w.calm()
	if err := w.server.Close(); err != nil {
		w.judge.Fail("close the server: %v", err)
	}
	_ = w.net.Close()
	served.Wait()
	w.calls.Wait()
	w.ground.end(w.judge)
	for _, v := range w.server.Violations() {
		w.judge.object(v)
	}
	r := &Report{Trace: w.judge.lines(), Failures: w.judge.failures, Lives: w.judge.life.n, Frames: w.judge.frames, Starts: w.judge.starts, Settled: map[refserver.SettledBy]int{}}
	for _, a := range w.judge.asks {
		if a.settled != nil {
			r.Settled[a.settled.By]++
		}
	}
	return r
}

// lane is link.Network over the network in memory.
type laneNetwork struct {
	link.Dialer
	net   *network
	judge *judge
}

func (l laneNetwork) Discover(context.Context) (string, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.net.refuse || l.net.deaf {
		return "", errors.New("the server cannot be reached")
	}
	return wire.WSPath, nil
}

func (l laneNetwork) Dial(ctx context.Context, p string) (link.Socket, error) {
	l.judge.dialling()
	return l.DialPath(ctx, p)
}

// start begins a life of the executor.
func (w *World) start() {
	w.judge.born()
	sleeps := make(chan bool, 64)
	w.mu.Lock()
	w.sleeps = sleeps
	w.mu.Unlock()
	c := executor.Config{
		DeviceID: w.device, Key: w.key, WorkspaceRoot: w.ground.folder(),
		Platform: wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "simulation"},
		Network: laneNetwork{link.Dialer{Server: &url.URL{Scheme: "http", Host: "server.invalid"},
			Transport: &http.Transport{DialContext: w.net.dial}}, w.net, w.judge},
		Outbox: outbox.Config{LaneBytes: w.s.Config.LaneBytes, LaneChunks: w.s.Config.LaneChunks, TotalBytes: w.s.Config.TotalBytes},
		Drain:  drain, Now: w.now, Random: w.random, Log: slog.New(slog.DiscardHandler),
		Suspend: func(context.Context) (logind.Manager, error) { return announcer{sleeps}, nil },
		OnState: w.judge.enters,
	}
	w.ground.executor(&c)
	w.change(&c)
	x := executor.New(c)
	ended := make(chan error, 1)
	go func() { ended <- x.Run(w.ctx) }()
	w.x, w.ended = x, ended
}

const drain = 3 * time.Second

// announcer is a login manager that the world speaks for.
type announcer struct{ sleeps chan bool }

func (a announcer) Sleeping(context.Context) (<-chan bool, error) { return a.sleeps, nil }
func (a announcer) Close() error                                  { return nil }
func (a announcer) Inhibit(context.Context, string, string) (io.Closer, error) {
	return io.NopCloser(nil), nil
}

func (w *World) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.skew + w.aged)
}

// hasEnded reports whether the executor ended by itself, which it must not.
func (w *World) hasEnded() bool {
	select {
	case err := <-w.ended:
		if f := w.judge.farewell(); f.reason != "" {
			w.tookLeave(err, f)
			w.start()
			return false
		}
		w.judge.Fail("the executor ended: %v", err)
		w.x = nil
		return true
	default:
		return false
	}
}

// await waits for the executor's end. Commands that cannot be killed are named in
// its error; nothing else may be.
func (w *World) await(limit time.Duration) {
	if w.x == nil {
		return
	}
	select {
	case err := <-w.ended:
		if f := w.judge.farewell(); f.reason != "" && errors.Is(err, f.ends()) {
			w.tookLeave(err, f)
			return
		}
		var survivors *process.SurvivorsError
		if err != nil && !errors.As(err, &survivors) && !errors.Is(err, context.DeadlineExceeded) {
			w.judge.Fail("the executor ended with %v", err)
		}
		if err != nil && !w.hasUndead() {
			w.judge.Fail("everything can be killed, and the executor ended with %v", err)
		}
		w.judge.Note("executor ended")
	case <-time.After(limit):
		w.judge.Fail("the executor did not end within %v", limit)
		<-w.ended
	}
	w.x = nil
}

// hasUndead reports whether any command of the schedule resists its end.
func (w *World) hasUndead() bool {
	for _, e := range w.s.Events {
		if e.Ask != nil && (e.Ask.Program.Term == Undead || e.Ask.Program.Term == Lingers) {
			return true
		}
	}
	return false
}

// after has end called when d has passed, or when calm comes.
func (w *World) after(d time.Duration, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later = append(w.later, &later{time.AfterFunc(d, end), end})
}

// order sends the server's faults as they are now.
func (w *World) order(change func(*faults)) {
	w.mu.Lock()
	change(&w.faults)
	f := w.faults.Faults
	repeat, withhold, unlist, brusque := w.faults.repeat, w.faults.withhold, w.faults.unlist, w.faults.brusque
	w.mu.Unlock()
	f.Outgoing = func(_ string, f wire.ServerFrame) (a refserver.Action) {
		switch f.ServerType() {
		case wire.TypeHelloAck:
			if unlist {
				ack := *f.(*wire.HelloAck)
				ack.PendingInstructions, ack.ChunkWatermarks = nil, nil
				a.Replace, _ = wire.AppendServer(nil, &ack) // it is smaller than one that fits
			}
			return a
		case wire.TypeBye:
			a.Cut = brusque
			return a
		case wire.TypeChunkAck:
			a.Drop = withhold&1 != 0
		case wire.TypeResultAck:
			a.Drop = withhold&2 != 0
		case wire.TypeInstruction, wire.TypeCancel:
		default:
			return a
		}
		a.Repeat = repeat
		return a
	}
	w.server.SetFaults(f)
}
