package simulation

import (
	"bytes"
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
)

// machine is a made-up computer: its processes outlive executors, if nobody ends
// them.
type machine struct {
	judge *judge

	seed uint64

	mu    sync.Mutex
	procs []*proc
	stop  chan struct{} // closed at the end of the world: even the undead die
	all   sync.WaitGroup
}

func newMachine(seed uint64, j *judge) *machine {
	return &machine{judge: j, seed: seed, stop: make(chan struct{})}
}

// moments are short whiles that no other event takes to the nanosecond. Each
// instruction has its own, so that it matters to none what others do.
type moments struct{ *rand.Rand }

func (m *machine) moments(id string) moments {
	h := fnv.New64()
	_, _ = io.WriteString(h, id) // never fails
	return moments{rand.New(rand.NewPCG(m.seed, h.Sum64()))}
}

func (m moments) moment(upTo time.Duration) time.Duration {
	return 1 + time.Duration(m.Int64N(int64(upTo)))
}

// reap ends whatever is left and waits for it.
func (m *machine) reap() {
	close(m.stop)
	m.mu.Lock()
	procs := m.procs
	m.mu.Unlock()
	for _, p := range procs {
		p.wake()
	}
	m.all.Wait()
}

// control is a process.Control over a machine, for one life of an executor.
type control struct {
	m   *machine
	cfg process.Config

	mu     sync.Mutex
	own    []*proc
	closed bool
}

func (m *machine) control(cfg process.Config) (process.Control, error) {
	return &control{m: m, cfg: cfg}, nil
}

func (*control) Level() string { return process.LevelTree }

func (c *control) Start(ctx context.Context, s process.Spec) (process.Command, error) {
	moments := c.m.moments(s.InstructionID)
	if err := pause(ctx, moments.moment(3*time.Millisecond)); err != nil {
		return nil, err
	}
	program, err := parseCommand(s.Command)
	if err != nil {
		return nil, &process.SpawnError{Err: err}
	}
	p := &proc{m: c.m, moments: moments, id: s.InstructionID, program: program, out: newPipe(), err: newPipe(),
		term: make(chan struct{}), kill: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}), code: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, process.ErrClosed
	}
	c.own = append(c.own, p)
	c.m.mu.Lock()
	c.m.procs = append(c.m.procs, p)
	p.pid = 1000 + len(c.m.procs)
	c.m.mu.Unlock()
	c.m.judge.started(p)
	c.m.all.Go(p.run)
	return p, nil
}

// closePatience is how long Close waits for the dead.
const closePatience = 5 * time.Second

func (c *control) Close() error {
	c.mu.Lock()
	c.closed = true
	own := c.own
	c.mu.Unlock()
	for _, p := range own {
		p.signal(&p.killOnce, p.kill)
	}
	limit := time.NewTimer(closePatience)
	defer limit.Stop()
	var left []int
	for _, p := range own {
		if len(left) == 0 {
			select {
			case <-p.gone:
				continue
			case <-limit.C:
			}
		}
		if !p.dead() {
			left = append(left, p.pid)
		}
	}
	if left != nil {
		return &process.SurvivorsError{PIDs: left}
	}
	return nil
}

// proc is one made-up command with its shell and perhaps an orphan. It implements
// process.Command.
type proc struct {
	m       *machine
	moments // of run alone

	id       string
	pid      int
	program  Program
	out, err *pipe

	termOnce, killOnce sync.Once
	term, kill         chan struct{}
	exited, gone       chan struct{}

	mu      sync.Mutex
	code    int
	orphans int       // alive now
	ended   int       // orphans that had to be ended
	endedAt time.Time // when somebody first wanted its end
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *proc) dead() bool { return closed(p.gone) }

// doomed reports whether the process can do nothing more.
func (p *proc) doomed() bool {
	if closed(p.m.stop) {
		return true
	}
	switch p.program.Term {
	case Undead:
		return false
	case Lingers, Ignores:
		return closed(p.kill)
	}
	return closed(p.kill) || closed(p.term)
}

// wake makes a writer look at the signals again.
func (p *proc) wake() {
	// With the lock, so that the writer is not between its look and its sleep.
	p.out.set(func() {})
	p.err.set(func() {})
}

func (p *proc) signal(once *sync.Once, c chan struct{}) {
	once.Do(func() {
		p.mu.Lock()
		if p.endedAt.IsZero() {
			p.endedAt = time.Now()
		}
		p.mu.Unlock()
		close(c)
	})
	p.wake()
}

// sleep waits unless the process is doomed first.
func (p *proc) sleep(d time.Duration) (alive bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	term := p.term
	if p.program.Term == Ignores || p.program.Term == Lingers || p.program.Term == Undead {
		term = nil
	}
	kill := p.kill
	if p.program.Term == Undead {
		kill = nil
	}
	select {
	case <-t.C:
		return true
	case <-term:
	case <-kill:
	case <-p.m.stop:
	}
	return false
}

// run is the shell's life and, after it, the orphan's.
func (p *proc) run() {
	texts := [3]io.Reader{1: p.program.text(1), 2: p.program.text(2)}
	say := func(stream, n int, stop func() bool) {
		to := p.out
		if stream == 2 {
			to = p.err
		}
		data := make([]byte, n)
		_, _ = io.ReadFull(texts[stream], data)
		if rest := to.write(data, stop); rest != nil {
			// What is said next goes on where this was interrupted.
			texts[stream] = io.MultiReader(bytes.NewReader(rest), texts[stream])
		}
	}
	alive := true
	for round := 0; alive && (round == 0 || p.program.Loop); round++ {
		for _, s := range p.program.Steps {
			if alive = p.sleep(s.After + p.moment(time.Microsecond)); !alive {
				break
			}
			if say(s.Stream, s.Bytes, p.doomed); p.doomed() {
				alive = false
				break
			}
		}
	}
	code := p.program.Exit
	switch {
	case alive:
	case closed(p.kill) || closed(p.m.stop):
		code = 128 + 9
		if p.program.Term == Lingers {
			p.wait(6*time.Second + p.moment(time.Second))
		} else {
			p.wait(p.moment(2 * time.Millisecond))
		}
	default:
		code = 128 + 15
		p.wait(p.moment(20 * time.Millisecond))
		if p.program.Term == Speaks {
			code = exitOfSpeaker
			say(1, wordBytes, func() bool { return closed(p.kill) || closed(p.m.stop) })
		}
	}
	orphan := alive && p.program.Orphan > 0
	p.mu.Lock()
	p.code = code
	if orphan {
		p.orphans = 1
	}
	p.mu.Unlock()
	if orphan {
		p.m.judge.exited(p)
		close(p.exited)
		if p.sleep(p.program.Orphan) {
			say(1, wordBytes, p.doomed)
		}
		p.mu.Lock()
		p.orphans = 0
		if p.doomed() {
			p.ended = 1
		}
		p.mu.Unlock()
	}
	p.out.release()
	p.wait(p.moment(time.Microsecond))
	p.err.release()
	if !orphan {
		p.m.judge.exited(p)
		close(p.exited)
	}
	close(p.gone)
}

// wait waits in a state where signals change nothing.
func (p *proc) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.m.stop:
	}
}

func (p *proc) Stdout() process.Pipe    { return p.out }
func (p *proc) Stderr() process.Pipe    { return p.err }
func (p *proc) Exited() <-chan struct{} { return p.exited }
func (p *proc) Gone() <-chan struct{}   { return p.gone }
func (p *proc) Err() error              { return nil }

func (p *proc) ExitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code
}

func (p *proc) Leftovers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.orphans
}

func (p *proc) Ended() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// killPatience is how long End waits for a killed process.
const killPatience = 5 * time.Second

func (p *proc) End(ctx context.Context, grace time.Duration) error {
	p.signal(&p.termOnce, p.term)
	if !p.await(ctx, grace) {
		p.signal(&p.killOnce, p.kill)
		if !p.await(ctx, killPatience) {
			return &process.SurvivorsError{PIDs: []int{p.pid}}
		}
	}
	return nil
}

func (p *proc) await(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.gone:
	case <-t.C:
	case <-ctx.Done():
	}
	return p.dead()
}

func (p *proc) Release() {
	p.signal(&p.killOnce, p.kill)
	_ = p.out.Close()
	_ = p.err.Close()
}

// wantedDeadSince is when somebody first wanted its end; zero: never.
func (p *proc) wantedDeadSince() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endedAt
}
