package instructions

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// How much content may be on its way between the socket and the disk.
const (
	// contentWindow is the most payload bytes that wait for one handler.
	contentWindow = 4 << 20
	// contentTotal is the most that wait for all of them.
	contentTotal = 32 << 20
	// contentPatience is how long the socket's reader waits for room for one frame
	// before its content is given up: a disk that stalls for longer must not keep
	// acknowledgements and cancels of others away.
	contentPatience = 5 * time.Second
)

// Why content ends without its commit.
var (
	// ErrContentCut reports a connection that was lost in the middle of a payload.
	// The rest cannot arrive any more: answer `target_unavailable`.
	ErrContentCut = errors.New("the connection was lost in the middle of the content")
	// ErrContentStalled reports a disk that left no room for a frame within 5 s:
	// answer `target_unavailable`.
	ErrContentStalled = errors.New("the disk did not take the content in time")
)

// Content carries the payload frames of one instruction from the socket to its
// handler, in order. It checks nothing but that: begin, chunk and commit, their
// numbers and digests are the handler's business.
//
// Next is for the handler, which calls it from one goroutine until the frame of
// part commit (or until it gave up and calls Close). Frames that arrive after the
// commit, after Close or after an error are dropped.
type Content struct {
	window *window

	mu       sync.Mutex
	frames   []*wire.Payload
	bytes    int   // of frames
	received int64 // in all
	err      error // sticky; queued frames are void once it is set
	whole    bool  // the commit has arrived
	closed   bool
	arrived  chan struct{} // 1-buffered: frames or err changed
}

// window bounds what all contents of a dispatcher hold together. The socket has
// one reader, so there is at most one that waits for room.
type window struct {
	bytes atomic.Int64
	room  chan struct{} // 1-buffered: some was freed
}

func newWindow() *window { return &window{room: make(chan struct{}, 1)} }

func newContent(w *window) *Content {
	return &Content{window: w, arrived: make(chan struct{}, 1)}
}

// Next returns the next frame, which belongs to the caller. It fails with the
// context's cause, ErrContentCut or ErrContentStalled.
func (c *Content) Next(ctx context.Context) (*wire.Payload, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
		if c.err != nil {
			c.mu.Unlock()
			return nil, c.err
		}
		if len(c.frames) > 0 {
			p := c.frames[0]
			c.frames[0] = nil
			c.frames = c.frames[1:]
			c.free(cost(p))
			c.mu.Unlock()
			return p, nil
		}
		c.mu.Unlock()
		select {
		case <-c.arrived:
		case <-ctx.Done():
		}
	}
}

// Close says that no more frames are wanted. The dispatcher calls it too, when
// the handler returns.
func (c *Content) Close() {
	c.mu.Lock()
	c.closed = true
	c.void()
	c.mu.Unlock()
}

// free gives n bytes of the window back. The caller holds mu.
func (c *Content) free(n int) {
	c.bytes -= n
	c.window.bytes.Add(int64(-n))
	signal(c.window.room)
}

// void drops what waits. The caller holds mu.
func (c *Content) void() {
	c.frames = nil
	c.free(c.bytes)
}

// put hands a frame over. It blocks while the window is full, for at most
// contentPatience; then the content is given up.
func (c *Content) put(p *wire.Payload) {
	var patience *time.Timer
	for {
		c.mu.Lock()
		if c.closed || c.whole || c.err != nil {
			c.mu.Unlock()
			return
		}
		n := cost(p)
		if c.bytes+n <= contentWindow && c.window.bytes.Load()+int64(n) <= contentTotal {
			c.frames = append(c.frames, p)
			c.bytes += n
			c.window.bytes.Add(int64(n))
			c.received += int64(len(p.Data))
			c.whole = p.Part == wire.PartCommit
			c.mu.Unlock()
			signal(c.arrived)
			return
		}
		c.mu.Unlock()
		if patience == nil {
			patience = time.NewTimer(contentPatience)
			defer patience.Stop()
		}
		select {
		case <-c.window.room:
		case <-patience.C:
			c.fail(ErrContentStalled)
			return
		}
	}
}

// cut voids content that is not whole yet.
func (c *Content) cut() { c.fail(ErrContentCut) }

func (c *Content) fail(err error) {
	c.mu.Lock()
	if !c.whole && c.err == nil {
		c.err = err
		c.void()
	}
	c.mu.Unlock()
	signal(c.arrived)
}

func (c *Content) bytesIn() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

// cost is what a waiting frame takes; an empty one is not free.
func cost(p *wire.Payload) int { return len(p.Data) + 256 }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
