package simulation

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// bufferBytes is what one direction of a connection holds, as kernels' buffers do.
const bufferBytes = 128 << 10

// dialPatience is after which a kernel gives up a dial that nobody answers.
const dialPatience = 20 * time.Second

// soon is within which what is under way on a good network arrives.
const soon = 10 * time.Millisecond

// network is TCP in memory: bytes keep their order, arrive late, and have a time of
// arrival of their own. It can be made to fail in the ways of a real one.
type network struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	seed    uint64
	latency time.Duration
	perByte time.Duration
	refuse  bool // nobody listens
	deaf    bool // nobody even says so
	current *pair
}

func newNetwork(seed uint64) *network {
	return &network{conns: make(chan net.Conn), done: make(chan struct{}), seed: seed, latency: time.Millisecond, perByte: 1}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { n.once.Do(func() { close(n.done) }); return nil }
func (n *network) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// dial is for http.Transport.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	refuse, deaf := n.refuse, n.deaf
	p := &pair{toServer: newLane(n, 1), toDevice: newLane(n, 2)}
	wait := n.latency + p.toServer.jitter()
	n.mu.Unlock()
	if deaf {
		if err := n.pause(ctx, dialPatience+wait); err != nil {
			return nil, err
		}
		return nil, syscall.ETIMEDOUT
	}
	if err := n.pause(ctx, wait); err != nil {
		return nil, err
	}
	if refuse {
		return nil, syscall.ECONNREFUSED
	}
	select {
	case n.conns <- &end{in: p.toServer, out: p.toDevice}:
	case <-n.done:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &end{in: p.toDevice, out: p.toServer, used: func() { n.set(func(n *network) { n.current = p }) }}, nil
}

func (n *network) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-n.done:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// set changes the weather.
func (n *network) set(f func(*network)) {
	n.mu.Lock()
	f(n)
	n.mu.Unlock()
}

// plain reports whether nothing is wrong with the network and the connection that was
// put to use last: what the server says on it is heard at once, behind nothing that is
// still under way from a worse time.
func (n *network) plain() bool {
	n.mu.Lock()
	good := n.latency <= time.Millisecond && n.perByte <= 1 && !n.refuse && !n.deaf
	p := n.current
	n.mu.Unlock()
	if p == nil || !good {
		return false
	}
	for _, l := range []*lane{p.toServer, p.toDevice} {
		l.mu.Lock()
		good = good && l.err == nil && !l.hole && !l.stalled && l.budget < 0 && !l.gone && !l.eof && time.Until(l.last) <= soon
		l.mu.Unlock()
	}
	return good
}

// heal makes new connections good ones. Ones that are open keep what they suffered.
func (n *network) heal() {
	n.set(func(n *network) { n.latency, n.perByte, n.refuse, n.deaf = time.Millisecond, 1, false, false })
}

// pace is how long n bytes take to be handed over, and to arrive after that.
func (n *network) pace(bytes int) (over, arrive time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(bytes) * n.perByte, n.latency
}

// open is the connection that was put to use last, or nil. One that was dialled for
// somebody who no longer wants it is none.
func (n *network) open() *pair {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

// pair is the two directions of one connection.
type pair struct{ toServer, toDevice *lane }

// each does something to the directions in the mask: 1 to the server, 2 to the
// device. A nil pair has none.
func (p *pair) each(mask int64, f func(*lane)) {
	if p == nil {
		return
	}
	if mask&1 != 0 {
		p.toServer.set(f)
	}
	if mask&2 != 0 {
		p.toDevice.set(f)
	}
}

// reset is the end of a connection for both ends at once.
func (p *pair) reset() { p.each(3, func(l *lane) { l.err = syscall.ECONNRESET }) }

// cutAfter resets the connection once n more bytes went one way.
func (p *pair) cutAfter(mask, n int64) {
	p.each(mask, func(l *lane) { l.budget, l.onSpent = n, p.reset })
}

// lane is one direction.
type lane struct {
	n *network

	mu      sync.Mutex
	cond    sync.Cond
	rand    *rand.Rand
	pieces  []piece
	held    int       // bytes in pieces
	last    time.Time // arrival of the newest piece
	eof     bool      // the writer closed
	gone    bool      // the reader closed
	err     error     // for both ends
	hole    bool      // swallows everything, for good
	stalled bool      // nothing arrives for now
	budget  int64     // bytes until onSpent; -1: no end
	onSpent func()
	readBy  time.Time // deadlines
	writeBy time.Time
}

type piece struct {
	data []byte
	at   time.Time
}

func newLane(n *network, way uint64) *lane {
	l := &lane{n: n, budget: -1, rand: rand.New(rand.NewPCG(n.seed, uint64(time.Now().UnixNano())<<2|way))}
	l.cond.L = &l.mu
	return l
}

// jitter keeps any two events from falling on one nanosecond.
func (l *lane) jitter() time.Duration { return 3 + time.Duration(l.rand.Int64N(100_000)) }

func (l *lane) set(f func(*lane)) {
	l.mu.Lock()
	f(l)
	l.mu.Unlock()
	l.cond.Broadcast()
}

// flow ends a stall: what has piled up comes in, one piece after another. The
// caller holds mu.
func (l *lane) flow() {
	if !l.stalled {
		return
	}
	l.stalled = false
	at := time.Now()
	for i := range l.pieces {
		p := &l.pieces[i]
		if at = at.Add(l.jitter()); p.at.Before(at) {
			p.at = at
			l.wakeAt(at)
		}
		at = p.at
	}
	if l.last.Before(at) {
		l.last = at
	}
}

func (l *lane) wakeAt(t time.Time) { time.AfterFunc(time.Until(t), l.cond.Broadcast) }

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (l *lane) read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.gone:
			return 0, net.ErrClosed
		case past(l.readBy):
			return 0, os.ErrDeadlineExceeded
		case l.err != nil:
			return 0, l.err
		case len(l.pieces) > 0 && !l.stalled && !l.hole && past(l.pieces[0].at):
			first := &l.pieces[0]
			n := copy(p, first.data)
			first.data = first.data[n:]
			l.held -= n
			if len(first.data) == 0 {
				l.pieces = l.pieces[1:]
			}
			l.cond.Broadcast()
			return n, nil
		case len(l.pieces) == 0 && l.eof && !l.hole && !l.stalled:
			return 0, io.EOF
		}
		l.cond.Wait()
	}
}

// write hands p over, at the network's pace.
func (l *lane) write(p []byte) (done int, err error) {
	for done < len(p) {
		n, spent, err := l.put(p[done:])
		if n == 0 && err == nil {
			// Let the reader take all that it takes at this moment.
			time.Sleep(time.Nanosecond)
			continue
		}
		done += n
		if spent != nil {
			spent()
			return done, syscall.ECONNRESET
		}
		if err != nil {
			return done, err
		}
		over, _ := l.n.pace(n)
		time.Sleep(max(over, 1))
	}
	return done, nil
}

// put takes as much of p as there is room for; nothing if it had to wait for room.
func (l *lane) put(p []byte) (n int, spent func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for waited := false; ; waited = true {
		switch {
		case l.eof:
			return 0, nil, net.ErrClosed
		case past(l.writeBy):
			return 0, nil, os.ErrDeadlineExceeded
		case l.err != nil:
			return 0, nil, l.err
		case l.gone && !l.hole:
			return 0, nil, syscall.EPIPE
		}
		if l.held < bufferBytes {
			if waited {
				return 0, nil, nil
			}
			break
		}
		l.cond.Wait()
	}
	n = min(len(p), bufferBytes-l.held)
	if l.budget >= 0 {
		n = int(min(int64(n), l.budget))
		if l.budget -= int64(n); l.budget == 0 {
			l.budget, spent = -1, l.onSpent
		}
	}
	if n > 0 {
		over, arrive := l.n.pace(n)
		from := time.Now().Add(arrive)
		if from.Before(l.last) {
			from = l.last
		}
		at := from.Add(over + l.jitter())
		l.last = at
		l.pieces = append(l.pieces, piece{append([]byte(nil), p[:n]...), at})
		l.held += n
		l.wakeAt(at)
	}
	return n, spent, nil
}

// end is one end of a connection.
type end struct {
	in, out *lane
	close   sync.Once
	first   sync.Once
	used    func() // called before the first write; may be nil
}

func (e *end) Read(p []byte) (int, error) { return e.in.read(p) }

func (e *end) Write(p []byte) (int, error) {
	if e.used != nil {
		e.first.Do(e.used)
	}
	return e.out.write(p)
}

func (e *end) Close() error {
	err := error(net.ErrClosed)
	e.close.Do(func() {
		err = nil
		e.in.set(func(l *lane) { l.gone = true })
		e.out.set(func(l *lane) { l.eof = true })
	})
	return err
}

func (e *end) LocalAddr() net.Addr  { return address{} }
func (e *end) RemoteAddr() net.Addr { return address{} }

func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.set(func(l *lane) { l.readBy = t })
	if !t.IsZero() {
		e.in.wakeAt(t)
	}
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.out.set(func(l *lane) { l.writeBy = t })
	if !t.IsZero() {
		e.out.wakeAt(t)
	}
	return nil
}

// pause waits, or says why it could not.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
