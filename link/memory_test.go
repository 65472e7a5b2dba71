package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// memNet is a network in memory: connections with a buffer in each direction, that
// can be refused, cut, and made to swallow everything (half-open).
type memNet struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	refuse  bool
	open    []*memPair
	dialled int
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
	n.mu.Lock()
	n.dialled++
	refuse := n.refuse
	n.mu.Unlock()
	if refuse {
		return nil, syscall.ECONNREFUSED
	}
	p := newMemPair()
	select {
	case n.conns <- p.server:
	case <-n.done:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	n.open = append(n.open, p)
	n.mu.Unlock()
	return p.device, nil
}

// setRefuse says whether dialling is refused from now on.
func (n *memNet) setRefuse(refuse bool) {
	n.mu.Lock()
	n.refuse = refuse
	n.mu.Unlock()
}

// last is the connection dialled last.
func (n *memNet) last() *memPair {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[len(n.open)-1]
}

// cutAll resets every connection.
func (n *memNet) cutAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.open {
		p.cut()
	}
	n.open = nil
}

// memPair is both ends of one connection.
type memPair struct {
	device, server   *memConn
	toDevice, toHost *pipe
}

func newMemPair() *memPair {
	p := &memPair{toDevice: newPipe(), toHost: newPipe()}
	p.device = &memConn{in: p.toDevice, out: p.toHost}
	p.server = &memConn{in: p.toHost, out: p.toDevice}
	return p
}

// freeze makes the path swallow everything in both directions, without a word to
// either end.
func (p *memPair) freeze() {
	p.toDevice.set(func(q *pipe) { q.hole = true })
	p.toHost.set(func(q *pipe) { q.hole = true })
}

// stall makes the peer of the device take nothing: its buffer fills up.
func (p *memPair) stall(yes bool) { p.toHost.set(func(q *pipe) { q.stalled = yes }) }

// cut resets the connection at both ends.
func (p *memPair) cut() {
	p.toDevice.set(func(q *pipe) { q.err = syscall.ECONNRESET })
	p.toHost.set(func(q *pipe) { q.err = syscall.ECONNRESET })
}

// pipe is one direction.
type pipe struct {
	mu            sync.Mutex
	cond          sync.Cond
	buf           []byte
	eof           bool  // the writer closed
	gone          bool  // the reader closed
	err           error // for both ends
	hole          bool
	stalled       bool
	readBy, putBy time.Time     // deadlines
	pace          time.Duration // what a KiB takes to read; 0: no time
	room          int           // how many bytes it holds
}

// pipeBytes is what a direction holds, as a kernel's socket buffer does.
const pipeBytes = 256 << 10

func newPipe() *pipe {
	q := &pipe{room: pipeBytes}
	q.cond.L = &q.mu
	return q
}

func (q *pipe) set(f func(*pipe)) {
	q.mu.Lock()
	f(q)
	q.mu.Unlock()
	q.cond.Broadcast()
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (q *pipe) read(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.gone:
			return 0, net.ErrClosed
		case q.err != nil:
			return 0, q.err
		case past(q.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(q.buf) > 0 && !q.stalled:
			if q.pace > 0 {
				p = p[:min(len(p), 1024)]
			}
			n := copy(p, q.buf)
			q.buf = q.buf[n:]
			q.cond.Broadcast()
			if pace := q.pace; pace > 0 {
				q.mu.Unlock()
				time.Sleep(pace)
				q.mu.Lock()
			}
			return n, nil
		case q.eof && !q.hole && !q.stalled:
			return 0, io.EOF
		}
		q.cond.Wait()
	}
}

func (q *pipe) write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	done := 0
	for {
		switch {
		case q.eof:
			return done, net.ErrClosed
		case q.err != nil:
			return done, q.err
		case q.gone && !q.hole:
			return done, syscall.EPIPE
		case past(q.putBy):
			return done, os.ErrDeadlineExceeded
		case q.hole:
			return len(p), nil
		}
		n := min(len(p)-done, q.room-len(q.buf))
		q.buf = append(q.buf, p[done:done+n]...)
		done += n
		q.cond.Broadcast()
		if done == len(p) {
			return done, nil
		}
		q.cond.Wait()
	}
}

// memConn is one end.
type memConn struct {
	in, out *pipe
	once    sync.Once
}

func (c *memConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memConn) Write(p []byte) (int, error) { return c.out.write(p) }

func (c *memConn) Close() error {
	err := error(net.ErrClosed)
	c.once.Do(func() {
		err = nil
		c.in.set(func(q *pipe) { q.gone = true })
		c.out.set(func(q *pipe) { q.eof = true })
	})
	return err
}

func (c *memConn) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "memory", Net: "unix"} }
func (c *memConn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (c *memConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	return c.deadline(c.in, t, func(q *pipe) { q.readBy = t })
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	return c.deadline(c.out, t, func(q *pipe) { q.putBy = t })
}

func (c *memConn) deadline(q *pipe, t time.Time, set func(*pipe)) error {
	q.set(set)
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), q.cond.Broadcast)
	}
	return nil
}
