package instructions

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// How much content may be on its way between the socket and the disk.
const (
	// contentWindow is the most payload bytes that wait for one handler.
	contentWindow = 4 << 20
	// contentPatience is how long the socket's reader waits for a handler that
	// takes nothing out of a full window before the content is given up.
	contentPatience = 5 * time.Second
)

// Why content ends without its commit.
var (
	// ErrContentCut reports a connection that was lost in the middle of a payload.
	// The rest cannot arrive any more: answer `target_unavailable`.
	ErrContentCut = errors.New("the connection was lost in the middle of the content")
	// ErrContentStalled reports a handler that took nothing for contentPatience
	// while the window was full: answer `target_unavailable`.
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
	mu       sync.Mutex
	frames   []*wire.Payload
	bytes    int   // of frames
	received int64 // in all
	err      error // sticky; queued frames are void once it is set
	whole    bool  // the commit has arrived
	closed   bool
	arrived  chan struct{} // 1-buffered: frames or err changed
	taken    chan struct{} // 1-buffered: a frame was taken, or nobody wants any
}

func newContent() *Content {
	return &Content{arrived: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
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
			c.bytes -= len(p.Data)
			c.mu.Unlock()
			signal(c.taken)
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
	c.frames, c.bytes = nil, 0
	c.mu.Unlock()
	signal(c.taken)
}

// put hands a frame over. It blocks while the window is full, for at most
// contentPatience without progress.
func (c *Content) put(p *wire.Payload) {
	var patience *time.Timer
	for {
		c.mu.Lock()
		if c.closed || c.whole || c.err != nil {
			c.mu.Unlock()
			return
		}
		// One frame always fits, whatever its size.
		if len(c.frames) == 0 || c.bytes+len(p.Data) <= contentWindow {
			c.frames = append(c.frames, p)
			c.bytes += len(p.Data)
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
		case <-c.taken:
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
		c.frames, c.bytes = nil, 0
	}
	c.mu.Unlock()
	signal(c.arrived)
}

func (c *Content) bytesIn() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
