package link

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gatherBytes is where a frame under construction is handed on although its
	// end is not known yet.
	gatherBytes = 256 << 10
	// pendingBytes bounds what may wait behind a write that does not finish: one
	// frame and the answers to a peer that sends pings and reads nothing.
	pendingBytes = 4 << 20
)

var errPeerReadsNothing = errors.New("the peer sends and does not read")

// coalescer stands between the WebSocket library, which writes each frame in
// pieces of 4 KiB, and the connection, for which each piece would be a system
// call (and a TLS record).
//
// Whoever writes a frame brackets it with hold and release: what is written in
// between, by anyone, is gathered and leaves at release at the latest. Writes
// outside such a bracket, the library's own pings, pongs and closes, leave at
// once; if a write is already under way they are left to it. So no byte ever
// waits for a write that may not come, and nobody guesses where a frame ends.
// As a welcome consequence a pong never waits behind a frame that the peer is
// slow to take.
//
// The mutex is never held over a write to the connection.
type coalescer struct {
	rwc   io.ReadWriteCloser
	clock func() time.Duration // monotonic
	heard atomic.Int64         // clock reading of the last sign of life

	frames  framing // the reader's
	refused error   // likewise: what arrives is not read on

	mu      sync.Mutex
	idle    sync.Cond // busy has become false
	pending []byte    // accepted, not yet handed on
	spare   []byte    // an empty buffer to take pending's place
	held    bool
	busy    bool // some goroutine is handing bytes on
	err     error
}

func newCoalescer(rwc io.ReadWriteCloser, clock func() time.Duration) *coalescer {
	c := &coalescer{rwc: rwc, clock: clock}
	c.idle.L = &c.mu
	c.heard.Store(int64(clock()))
	return c
}

// Read implements io.Reader and takes note of the time. It does not go on into a
// frame that is too large.
func (c *coalescer) Read(p []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	n, err := c.rwc.Read(p)
	if n == 0 {
		return n, err
	}
	now := c.clock()
	n, alive, refused := c.frames.take(p[:n], now)
	if alive {
		c.heard.Store(int64(now))
	}
	if refused != nil {
		c.refused, err = refused, refused
	}
	return n, err
}

// Write implements io.Writer. A nil error means accepted: an error that shows
// only later is the result of the next Write or release.
func (c *coalescer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && len(c.pending)+len(p) > pendingBytes {
		c.err = errPeerReadsNothing
	}
	if c.err != nil {
		return 0, c.err
	}
	c.pending = append(c.pending, p...)
	if c.busy || (c.held && len(c.pending) < gatherBytes) {
		return len(p), nil
	}
	c.handOn()
	return len(p), c.err
}

// hold begins a bracket. There is one at a time.
func (c *coalescer) hold() {
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
}

// release ends the bracket: when it returns nil, everything accepted so far has
// been handed to the connection.
func (c *coalescer) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy {
		c.idle.Wait()
	}
	c.held = false
	c.handOn()
	return c.err
}

// handOn writes out what is pending until nothing is; mu is held and given up
// for the writes.
func (c *coalescer) handOn() {
	c.busy = true
	for len(c.pending) > 0 && c.err == nil {
		out := c.pending
		c.pending, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		_, err := c.rwc.Write(out)
		c.mu.Lock()
		if cap(out) <= 2*gatherBytes {
			c.spare = out
		}
		if err != nil && c.err == nil {
			c.err = err
		}
	}
	c.busy = false
	c.idle.Broadcast()
}

// Close implements io.Closer. It waits for nothing: writes under way fail.
func (c *coalescer) Close() error { return c.rwc.Close() }
