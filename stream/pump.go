// Package stream turns what a reader yields into pieces for an outbox lane.
//
// Pump promises: every byte, in order, once; no piece empty, none above
// wire.MaxChunkBytes; a flood in full pieces at close to the speed of the reader
// itself; a trickle gathered for a few milliseconds, so that a program that writes
// byte by byte does not cost a frame per byte and its line still appears at once;
// and a reader that is not read while nobody takes its bytes.
package stream

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// gather is how long a byte waits for others to share its piece.
const gather = 5 * time.Millisecond

// Pump reads r to its end and hands what it read to put, which may block and must
// not keep the data. It returns nil at io.EOF, else the error of put, of r, or of
// ctx. What was read before an error of r is put before Pump returns it.
//
// Reading goes on while a piece is gathered or put; at most 128 KiB are held, then
// r is not read until put has returned.
//
// Pump returns once both put and r.Read have returned, so whoever wants it to stop
// while r yields nothing must make r.Read return. Where r has a SetReadDeadline (as
// pipes of package os do), the end of ctx and an error of put do that.
func Pump(ctx context.Context, r io.Reader, put func(ctx context.Context, data []byte) error) error {
	p := &pump{
		filling: blocks.Get().(*block),
		wake:    make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
	}
	put1 := func(data []byte) error { return put(ctx, data) }
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := p.putAll(ctx, put1); err != nil {
			p.fail(err)
			if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
				_ = d.SetReadDeadline(time.Unix(1, 0)) // best effort: not every file can
			}
		}
	}()
	err := p.readAll(r)
	<-stopped
	p.recycle()
	if p.putErr != nil {
		return p.putErr
	}
	return err
}

type block [wire.MaxChunkBytes]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

// pump is shared by the goroutine that reads and the one that puts. The reader
// fills one block; the putter may take what is in it so far, while the reader goes
// on behind that. A block filled to its end becomes full, and stays so until its
// rest was put; only then may the next one become full.
type pump struct {
	wake chan struct{} // 1-buffered: there is something to put, or no more to come
	room chan struct{} // 1-buffered: full was emptied, or putting has failed

	mu      sync.Mutex
	filling *block
	taken   int // of filling: bytes the putter has taken
	end     int // of filling: bytes read
	full    *block
	rest    int    // of full: where its bytes not yet taken begin
	spare   *block // the other block, once there is one
	ended   bool   // nothing more will be read
	putErr  error
}

// readAll fills blocks until r ends or putting fails.
func (p *pump) readAll(r io.Reader) error {
	for idle := 0; ; {
		n, err := r.Read(p.filling[p.end:]) // filling and end change in this goroutine alone
		if n > 0 {
			idle = 0
		} else if idle++; idle == 100 && err == nil {
			err = io.ErrNoProgress
		}
		if !p.filled(n, err != nil) {
			return nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// filled records n bytes read, and makes room for more. It reports false once
// putting has failed.
func (p *pump) filled(n int, ended bool) bool {
	p.mu.Lock()
	first := p.end == p.taken && n > 0
	p.end += n
	p.ended = ended
	if first || ended {
		signal(p.wake)
	}
	for p.end == len(p.filling) && p.full != nil && p.putErr == nil {
		p.mu.Unlock()
		<-p.room
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	if p.putErr != nil {
		return false
	}
	if p.end == len(p.filling) {
		if p.spare == nil {
			p.spare = blocks.Get().(*block)
		}
		p.full, p.rest = p.filling, p.taken
		p.filling, p.spare = p.spare, nil
		p.taken, p.end = 0, 0
		signal(p.wake)
	}
	return true
}

// putAll puts what is read until all of it is put.
func (p *pump) putAll(ctx context.Context, put func([]byte) error) error {
	timer := time.NewTimer(gather)
	timer.Stop()
	defer timer.Stop()
	gathered := false
	for {
		p.mu.Lock()
		var piece []byte
		full := p.full != nil
		ended := p.ended
		switch {
		case full:
			piece = p.full[p.rest:]
		case p.taken < p.end && (gathered || ended):
			piece = p.filling[p.taken:p.end]
			p.taken = p.end
		}
		some := p.taken < p.end
		p.mu.Unlock()

		if full || piece != nil {
			gathered = false
			if len(piece) > 0 && !fault.On("stream: lose a piece") {
				if err := put(piece); err != nil {
					return err
				}
			}
			if full {
				p.emptied()
			}
			continue
		}
		if ended {
			return nil
		}
		if some {
			timer.Reset(gather)
		}
		select {
		case <-p.wake:
		case <-timer.C:
			gathered = true
		case <-ctx.Done():
			return ctx.Err()
		}
		timer.Stop()
	}
}

// emptied gives the full block back to the reader.
func (p *pump) emptied() {
	p.mu.Lock()
	p.full, p.spare = nil, p.full
	p.mu.Unlock()
	signal(p.room)
}

// fail records that putting has failed, which ends the reading.
func (p *pump) fail(err error) {
	p.mu.Lock()
	p.putErr = err
	p.mu.Unlock()
	signal(p.room)
}

// recycle gives the blocks back when nobody uses them any more.
func (p *pump) recycle() {
	for _, b := range []*block{p.filling, p.full, p.spare} {
		if b != nil {
			blocks.Put(b)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
