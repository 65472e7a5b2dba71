package simulation

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
)

// pipeBytes is what a made-up pipe holds.
const pipeBytes = 64 << 10

// pipe is a made-up process.Pipe and the end that is written to.
type pipe struct {
	mu      sync.Mutex
	cond    sync.Cond
	buf     []byte
	writers int  // processes that hold it
	closed  bool // by the reader
	readBy  time.Time
	written int64 // by the command, ever
	taken   int64 // by the executor, ever
}

func newPipe() *pipe {
	p := &pipe{writers: 1}
	p.cond.L = &p.mu
	return p
}

func (p *pipe) set(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	p.cond.Broadcast()
}

// write writes as the command would; it stops early once stop says so, or the
// reader is gone. It returns what was not written.
func (p *pipe) write(data []byte, stop func() bool) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(data) > 0 {
		switch {
		case stop() || p.closed:
			return data
		case len(p.buf) < pipeBytes:
			n := min(len(data), pipeBytes-len(p.buf))
			p.buf = append(p.buf, data[:n]...)
			p.written += int64(n)
			data = data[n:]
			p.cond.Broadcast()
		default:
			p.cond.Wait()
		}
	}
	return nil
}

func (p *pipe) release() { p.set(func() { p.writers-- }) }

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		n, err := p.available(b)
		if err != process.ErrWouldBlock {
			return n, err
		}
		if past(p.readBy) {
			return 0, os.ErrDeadlineExceeded
		}
		p.cond.Wait()
	}
}

func (p *pipe) ReadAvailable(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.available(b)
}

func (p *pipe) available(b []byte) (int, error) {
	switch {
	case p.closed:
		return 0, os.ErrClosed
	case len(p.buf) > 0:
		n := copy(b, p.buf)
		p.buf = p.buf[n:]
		p.taken += int64(n)
		p.cond.Broadcast()
		return n, nil
	case p.writers == 0:
		return 0, io.EOF
	}
	return 0, process.ErrWouldBlock
}

func (p *pipe) Close() error { p.set(func() { p.closed = true }); return nil }

func (p *pipe) SetReadDeadline(t time.Time) error {
	p.set(func() { p.readBy = t })
	if !t.IsZero() && !past(t) {
		time.AfterFunc(time.Until(t), p.cond.Broadcast)
	}
	return nil
}

// counts returns what was written and taken so far.
func (p *pipe) counts() (written, taken int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written, p.taken
}
