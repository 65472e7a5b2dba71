package instructions

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
)

// fakeControl runs Go functions as if they were commands.
type fakeControl struct {
	startErr  error
	hang      bool  // Start waits for its context
	survivors []int // what End names when something would not die
	shell     func(*proc) int
	specs     []process.Spec
	last      *fakeCommand
}

func (f *fakeControl) Level() string { return process.LevelTree }
func (f *fakeControl) Close() error  { return nil }

func (f *fakeControl) Start(ctx context.Context, s process.Spec) (process.Command, error) {
	f.specs = append(f.specs, s)
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.startErr != nil {
		return nil, f.startErr
	}
	c := &fakeCommand{
		exited: make(chan struct{}), gone: make(chan struct{}),
		term: make(chan struct{}), kill: make(chan struct{}),
		out: newFakePipe(), err: newFakePipe(), code: -1,
		survivors: f.survivors,
	}
	f.last = c
	c.fork(func(p *proc) {
		c.code = f.shell(p)
		close(c.exited)
	})
	go func() {
		c.procs.Wait()
		close(c.gone)
	}()
	return c, nil
}

// fakeCommand is a tree of procs.
type fakeCommand struct {
	out, err     *fakePipe
	exited, gone chan struct{}
	term, kill   chan struct{}
	termOnce     sync.Once
	killOnce     sync.Once
	procs        sync.WaitGroup
	live         atomic.Int32
	ended        atomic.Int32
	code         int
	lost         error
	released     atomic.Bool
	survivors    []int
}

// proc is one process. Its function returns when it ends; it should heed term or
// kill. It holds both pipes until then, unless it closes them.
type proc struct {
	*fakeCommand
	holds bool
}

func (c *fakeCommand) fork(run func(*proc)) {
	p := &proc{fakeCommand: c, holds: true}
	c.out.hold(1)
	c.err.hold(1)
	c.live.Add(1)
	c.procs.Add(1)
	go func() {
		defer c.procs.Done()
		run(p)
		p.closePipes()
		c.live.Add(-1)
	}()
}

func (p *proc) closePipes() {
	if p.holds {
		p.holds = false
		p.out.hold(-1)
		p.err.hold(-1)
	}
}

// sleep returns false if a signal ended it.
func (p *proc) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.term:
		return false
	}
}

func (p *proc) print(s string) { p.out.write([]byte(s), p.kill) }

func (c *fakeCommand) Stdout() process.Pipe    { return c.out }
func (c *fakeCommand) Stderr() process.Pipe    { return c.err }
func (c *fakeCommand) Exited() <-chan struct{} { return c.exited }
func (c *fakeCommand) Gone() <-chan struct{}   { return c.gone }
func (c *fakeCommand) Err() error              { return c.lost }
func (c *fakeCommand) Ended() int              { return int(c.ended.Load()) }
func (c *fakeCommand) Release()                { c.released.Store(true) }
func (c *fakeCommand) ExitCode() int           { return c.code }
func (c *fakeCommand) Leftovers() int          { return int(c.live.Load()) }

func (c *fakeCommand) End(ctx context.Context, grace time.Duration) error {
	if closed(c.exited) {
		c.ended.Store(c.live.Load())
	}
	c.termOnce.Do(func() { close(c.term) })
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-c.gone:
		return nil
	case <-t.C:
	case <-ctx.Done():
		return &process.SurvivorsError{PIDs: c.survivors}
	}
	c.killOnce.Do(func() { close(c.kill) })
	stubborn := time.NewTimer(5 * time.Second)
	defer stubborn.Stop()
	select {
	case <-c.gone:
		return nil
	case <-stubborn.C:
	case <-ctx.Done():
	}
	return &process.SurvivorsError{PIDs: c.survivors}
}

// fakePipe is a pipe of 64 KiB.
type fakePipe struct {
	mu       sync.Mutex
	data     []byte
	holders  int
	deadline bool
	changed  chan struct{} // closed and replaced at every change
}

const pipeSize = 64 << 10

func newFakePipe() *fakePipe { return &fakePipe{changed: make(chan struct{})} }

func (p *fakePipe) change(f func()) {
	p.mu.Lock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
}

func (p *fakePipe) hold(n int) { p.change(func() { p.holders += n }) }

func (p *fakePipe) write(b []byte, kill <-chan struct{}) {
	for len(b) > 0 {
		p.mu.Lock()
		n := min(len(b), pipeSize-len(p.data))
		changed := p.changed
		p.mu.Unlock()
		if n == 0 {
			select {
			case <-changed:
			case <-kill:
				return
			}
			continue
		}
		p.change(func() { p.data = append(p.data, b[:n]...) })
		b = b[n:]
	}
}

// take is one look at the pipe; changed is for waiting.
func (p *fakePipe) take(b []byte) (n int, ended, late bool, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = copy(b, p.data); n > 0 {
		p.data = p.data[n:]
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return n, p.holders == 0, p.deadline, p.changed
}

func (p *fakePipe) Read(b []byte) (int, error) {
	for {
		n, ended, late, changed := p.take(b)
		switch {
		case n > 0:
			return n, nil
		case late:
			return 0, os.ErrDeadlineExceeded
		case ended:
			return 0, io.EOF
		}
		<-changed
	}
}

func (p *fakePipe) ReadAvailable(b []byte) (int, error) {
	n, ended, _, _ := p.take(b)
	switch {
	case n > 0:
		return n, nil
	case ended:
		return 0, io.EOF
	}
	return 0, process.ErrWouldBlock
}

func (p *fakePipe) SetReadDeadline(t time.Time) error {
	p.change(func() { p.deadline = !t.IsZero() })
	return nil
}

func (p *fakePipe) Close() error { return nil }
