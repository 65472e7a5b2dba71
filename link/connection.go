package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

const (
	// writeLimit is how long one frame may take to be written.
	writeLimit = 20 * time.Second
	// provenAfter is how long a connection must have been active to count as good
	// although nothing was asked on it.
	provenAfter = 10 * time.Second
	// fenceLimit is how long the fence waits for the dead. What the kernel will not
	// let die runs no code any more, so it counts as fenced then.
	fenceLimit = 10 * time.Second
	// lastWordLimit is how long the reader may take to come to its end once the
	// connection has broken.
	lastWordLimit = 500 * time.Millisecond
	// napGoodbyeLimit is how long a goodbye before sleep may take: the machine
	// grants few seconds in all.
	napGoodbyeLimit = time.Second
	// minInterval and maxInterval bound the heartbeat interval that a server asks for.
	minInterval = 50 * time.Millisecond
	maxInterval = time.Hour
)

// connection is one socket after its handshake. serve's goroutine decides; reader,
// writer and pinger report to it.
type connection struct {
	l        *Link
	socket   Socket
	ack      *wire.HelloAck
	gen      wire.Gen
	interval time.Duration

	ends    chan outcome          // from reader, writer and timers
	control chan wire.DeviceFrame // to the writer, ahead of all output
	pings   chan struct{}         // to the pinger, by way of the writer
	said    chan struct{}         // closed when goodbye has been written
	heard   chan struct{}         // closed when nothing more is read
	done    chan struct{}         // closed when the connection is over

	over      atomic.Bool  // nothing that is read counts any more
	open      atomic.Bool  // generationAck is on its way: output may follow, input is welcome
	proven    atomic.Bool  // an instruction or an acknowledgement came
	beatOwed  atomic.Bool  // a heartbeat is in control
	pingOwed  atomic.Bool  // a ping is in control
	writing   atomic.Int64 // when the write under way began, in ns since birth; 0: none
	asked     atomic.Int64 // when the first ping since the last sign of life went, likewise
	born      time.Time
	stalled   *time.Timer
	beats     int64 // the writer's: heartbeats sent
	goodbying bool  // serve's: goodbye was given to the writer
}

// pingOrder travels in the control channel so that no ping starts while a frame
// is being written.
type pingOrder struct{}

func (pingOrder) DeviceType() wire.DeviceFrameType { return "" }

func newConnection(l *Link, socket Socket, ack *wire.HelloAck) *connection {
	c := &connection{
		l: l, socket: socket, ack: ack, gen: ack.Gen,
		interval: maxInterval,
		ends:     make(chan outcome, 8),
		control:  make(chan wire.DeviceFrame, 8),
		pings:    make(chan struct{}, 1),
		said:     make(chan struct{}),
		heard:    make(chan struct{}),
		done:     make(chan struct{}),
		born:     time.Now(),
	}
	if ms := ack.HeartbeatIntervalMs; ms < maxInterval.Milliseconds() {
		c.interval = max(time.Duration(ms)*time.Millisecond, minInterval)
	}
	return c
}

// end reports how the connection ended. The first report is acted on, but a final one
// wins over it (see lastWord).
func (c *connection) end(out outcome) {
	select {
	case c.ends <- out:
	default:
	}
}

// serve runs the connection to its end and cleans up after it.
func (c *connection) serve(ctx context.Context) outcome {
	l := c.l
	connCtx, cancel := context.WithCancel(ctx)
	c.stalled = time.AfterFunc(writeLimit, func() {
		c.end(outcome{kind: retry, cause: CauseWriteStalled, err: errWriteStalled})
	})
	c.stalled.Stop()

	var all sync.WaitGroup
	all.Go(func() { defer close(c.heard); c.read() })
	all.Go(c.write)
	all.Go(func() { c.ping(connCtx) })
	fenced := make(chan []string, 1)
	l.enter(State{Phase: Fencing, Cause: CauseHelloAck, Gen: c.gen})
	all.Go(func() { fenced <- c.fence(connCtx) })

	out := c.lastWord(c.watch(ctx, fenced))

	c.over.Store(true)
	if out.polite {
		_ = c.socket.Close()
	}
	_ = c.socket.CloseNow()
	close(c.done)
	cancel()
	c.stalled.Stop()
	// Once before, so that a reader that hands over content is let go; once after,
	// so that content it began in the meantime is cut as well.
	l.cfg.Work.Disconnected()
	all.Wait()
	l.cfg.Work.Disconnected()
	l.cfg.Outbox.Suspend()
	if c.proven.Load() {
		l.backOff.reset()
	}
	return out.outcome
}

// ended is an outcome and whether the peer is to be told by a close frame.
type ended struct {
	outcome
	polite bool
}

// watch obeys orders, keeps the times and waits for the end.
func (c *connection) watch(ctx context.Context, fenced <-chan []string) ended {
	l := c.l
	beat := time.NewTicker(c.interval)
	defer beat.Stop()
	look := time.NewTicker(pulse)
	defer look.Stop()
	v := newVigil(c)
	defer v.stop()
	proof := time.NewTimer(provenAfter)
	proof.Stop()
	defer proof.Stop()
	linger := time.NewTimer(lingerAfterGoodbye)
	linger.Stop()
	defer linger.Stop()
	said := c.said
	lingered := false

	for {
		select {
		case out := <-c.ends:
			return ended{outcome: out}
		case <-ctx.Done():
			return ended{outcome: *l.stoppedNow(ctx)}

		case stuck := <-fenced:
			fenced = nil
			proof.Reset(provenAfter)
			cause := CauseFenced
			if len(stuck) > 0 {
				cause = CauseFencedStuck
			}
			l.enter(State{Phase: Active, Cause: cause, Gen: c.gen, Stuck: stuck})
			if l.departure != nil {
				c.sayGoodbye()
			}
		case <-proof.C:
			c.proven.Store(true)

		case <-beat.C:
			if !fault.On("link: no heartbeat") {
				c.owe(&c.beatOwed, &wire.Heartbeat{Gen: c.gen})
			}
			c.owe(&c.pingOwed, pingOrder{})
			if l.cfg.OnBeat != nil {
				l.cfg.OnBeat()
			}
		case <-look.C:
			l.cfg.Outbox.Tick(l.cfg.Now())
			if l.watch.jumped() {
				v.probe()
			}
		case <-l.wake:
			v.probe()
		case <-v.due():
			if out, over := v.judge(); over {
				return ended{outcome: out}
			}

		case nap := <-l.suspend:
			return c.nap(nap)
		case <-l.ordered():
			l.depart(ctx)
			if fenced == nil {
				c.sayGoodbye()
			}
		case <-l.departure.settles():
			l.departure.settle()
		case <-l.departure.late():
			l.departure.giveUp()
		case <-l.acked:
		case <-said:
			said = nil
			linger.Reset(lingerAfterGoodbye)
		case <-linger.C:
			lingered = true
		}
		if l.mayGo() && (lingered || l.departure.isLate) {
			return ended{outcome: l.gone(), polite: lingered}
		}
	}
}

// sayGoodbye gives the goodbye of a departure to the writer, once.
func (c *connection) sayGoodbye() {
	if c.goodbying {
		return
	}
	c.goodbying = true
	if fault.On("link: no goodbye") {
		close(c.said)
		return
	}
	c.l.enter(State{Phase: Leaving, Cause: c.l.leaveCause(), Gen: c.gen})
	c.control <- c.l.goodbye(c.gen, c.l.reason)
}

// nap says the goodbye of a sleep, if there is anyone to say it to.
func (c *connection) nap(done chan<- struct{}) ended {
	out := ended{outcome: outcome{kind: nap, cause: CauseSuspend, done: done}}
	if !c.open.Load() || c.goodbying {
		return out
	}
	c.control <- c.l.goodbye(c.gen, wire.GoodbyeSleep)
	limit := time.NewTimer(napGoodbyeLimit)
	defer limit.Stop()
	select {
	case <-c.said:
		out.polite = true
	case end := <-c.ends:
		c.end(end) // lastWord looks at it
	case <-limit.C:
	}
	return out
}

// lastWord gives a final bye its due where something else ended the connection first:
// a server that says bye and closes makes the frame under way fail, and the bye may
// not have been read by then.
func (c *connection) lastWord(out ended) ended {
	if out.kind == final || fault.On("link: only the first end of a connection counts") {
		return out
	}
	limit := time.NewTimer(lastWordLimit)
	defer limit.Stop()
	broken := out.broken()
	for {
		select {
		case end := <-c.ends:
			if end.kind == final {
				if out.done != nil {
					close(out.done)
				}
				return ended{outcome: end}
			}
			broken = broken || end.broken()
			continue
		default:
		}
		if !broken {
			return out
		}
		select {
		case <-c.heard:
			broken = false
		case end := <-c.ends:
			c.end(end)
		case <-limit.C:
			broken = false
		}
	}
}

// broken reports whether the socket itself ended a connection.
func (o outcome) broken() bool { return o.cause == CausePeerClosed || o.cause == CauseSocketFailed }

// owe puts an order that may not pile up into the control channel.
func (c *connection) owe(owed *atomic.Bool, order wire.DeviceFrame) {
	if owed.CompareAndSwap(false, true) {
		c.control <- order
	}
}

func (c *connection) clock() int64 { return int64(time.Since(c.born)) + 1 }

// lost names the end of a connection by the socket's error, in words that do not
// come from the library's depths.
func lost(err error) outcome {
	var (
		closed websocket.CloseError
		errno  syscall.Errno
	)
	out := outcome{kind: retry, cause: CausePeerClosed}
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		out.cause = CauseSocketFailed
		out.err = fmt.Errorf("the server sent a frame of more than %d bytes, which the protocol has none of", wire.MaxFrameBytes)
	case errors.As(err, &closed):
		out.err = fmt.Errorf("the server closed the connection (code %d)", int(closed.Code))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		out.err = errors.New("the connection was closed by the server, or by something on the way")
	case errors.As(err, &errno):
		out.cause, out.err = CauseSocketFailed, fmt.Errorf("the connection failed: %w", errno)
	default:
		out.cause, out.err = CauseSocketFailed, fmt.Errorf("the connection failed: %w", err)
	}
	return out
}
