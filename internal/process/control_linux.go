package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type control struct {
	cfg      Config
	log      *slog.Logger
	bootID   string
	executor string // our identity, for helpers

	mu      sync.Mutex
	closed  bool
	keeper  *keeperLink
	lost    []*keeperLink // killed ones that may have left supervisors
	idle    []*link       // supervisors that have no command
	warming bool
	running map[*command]struct{}

	session int           // ours
	older   map[proc]bool // descendants that we had before any of these

	life context.Context // until Close
	end  context.CancelFunc
	work sync.WaitGroup
}

// spawnPatience bounds how long a supervisor may take to appear. A keeper that
// takes longer is stopped or stuck, and is replaced.
const spawnPatience = 10 * time.Second

// New returns the Control of this machine. There is one per process: this process
// becomes a sub-reaper, and to the Control belongs whatever falls to it from then on.
func New(cfg Config) (Control, error) {
	self, err := readProc(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("process control: read /proc: %w (is it mounted?)", err)
	}
	boot, err := BootID()
	if err != nil {
		return nil, fmt.Errorf("process control: boot id: %w", err)
	}
	c := &control{
		cfg: cfg, log: cfg.Log, bootID: boot, executor: identity(self),
		running: make(map[*command]struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	reserveThreads(executorThreads)
	if err := c.adopt(); err != nil {
		return nil, fmt.Errorf("process control: %w", err)
	}
	if _, err := c.liveKeeper(); err != nil {
		return nil, fmt.Errorf("process control: %w", err)
	}
	c.work.Go(func() { reapStrangers(c.life.Done(), c.isKeeper) })
	c.warm()
	return c, nil
}

// BootID names the boot of this machine, as [Recorded] has it.
func BootID() (string, error) {
	b, err := readSmall("/proc/sys/kernel/random/boot_id")
	return string(trimNewline(b)), err
}

// Level implements Control.
func (c *control) Level() string { return LevelTree }

func (c *control) isKeeper(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keeper != nil && c.keeper.pid == pid
}

// liveKeeper is the keeper, a new one if the last was killed.
func (c *control) liveKeeper() (*keeperLink, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.keeper != nil {
		select {
		case <-c.keeper.gone:
			c.log.Warn("the keeper process was killed; starting another", "pid", c.keeper.pid)
		default:
			return c.keeper, nil
		}
	}
	k, err := startKeeper(c.executor)
	if err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	if c.keeper != nil {
		c.lost = append(slices.DeleteFunc(c.lost, (*keeperLink).childless), c.keeper)
	}
	c.keeper = k
	c.work.Go(k.serve)
	c.work.Go(k.keepAwake)
	c.work.Go(func() { c.replace(k) })
	return k, nil
}

// replace starts another keeper when this one is killed: what is started from then
// on has one above it again, and the owner hears of it at once.
func (c *control) replace(k *keeperLink) {
	began := time.Now()
	<-k.gone
	// Whoever kills one after the other is not raced.
	if wait(c.life, time.Until(began.Add(time.Second))) == nil {
		_, _ = c.liveKeeper() // the next command tries again, and says what is wrong
	}
}

// spawn starts a supervisor.
func (c *control) spawn(ctx context.Context) (*link, error) {
	k, err := c.liveKeeper()
	if err != nil {
		return nil, err
	}
	ch, other, err := newChannelPair()
	if err != nil {
		return nil, &SpawnError{Err: err}
	}
	b, err := k.request(ch, other)
	unix.Close(other)
	if err != nil {
		ch.close()
		return nil, &SpawnError{Err: err}
	}
	patience := time.NewTimer(spawnPatience)
	defer patience.Stop()
	select {
	case err = <-b.done:
	case <-patience.C:
		_ = k.process.Kill()
		err = errors.New("the keeper process does not answer")
	case <-ctx.Done():
		ch.close()
		return nil, ctx.Err()
	}
	if err != nil {
		ch.close()
		return nil, &SpawnError{Err: err}
	}
	return b.link, nil
}

// warm starts a supervisor ahead of need, in the background.
func (c *control) warm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.warming || len(c.idle) > 0 {
		return
	}
	c.warming = true
	c.work.Go(func() {
		l, err := c.spawn(context.Background())
		c.mu.Lock()
		c.warming = false
		c.mu.Unlock()
		if err == nil {
			c.shelve(l)
		} // else the next Start tries for itself and reports
	})
}

// maxIdle is how many supervisors may wait for a command. In steady work none
// has to be started; each costs about 2 MiB of its own.
const maxIdle = 4

// shelve keeps a supervisor that has no command for the next one.
func (c *control) shelve(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdle {
		l.ch.close() // it ends with its channel
		return
	}
	c.idle = append(c.idle, l)
}

// take is a supervisor without a command, a new one if none is waiting.
func (c *control) take(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		var l *link
		if n := len(c.idle); n > 0 {
			l, c.idle = c.idle[n-1], c.idle[:n-1]
		}
		c.mu.Unlock()
		if l == nil {
			return c.spawn(ctx)
		}
		if l.keeper.vouches(l.pid) {
			return l, nil
		}
		l.ch.close()
	}
}

// Start implements Control.
func (c *control) Start(ctx context.Context, s Spec) (Command, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	env := s.environ()
	if name, size := largestVariable(env); size > maxArgument() {
		return nil, &SpawnError{Variable: name, Err: unix.E2BIG}
	}
	l, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	defer c.warm()
	recorded := Recorded{InstructionID: s.InstructionID, BootID: c.bootID, PID: l.pid, StartTime: l.start}
	if c.cfg.Before != nil {
		if err := c.cfg.Before(recorded); err != nil {
			c.shelve(l)
			return nil, err
		}
	}
	cmd, err := c.begin(ctx, l, &s, env, recorded)
	if err != nil {
		var alive *SurvivorsError
		if !errors.As(err, &alive) {
			c.after(recorded)
		}
		return nil, err
	}
	return cmd, nil
}

func (c *control) after(r Recorded) {
	if c.cfg.After != nil {
		c.cfg.After(r)
	}
}

// begin hands the command to its supervisor and waits until the shell runs.
func (c *control) begin(ctx context.Context, l *link, s *Spec, env []string, recorded Recorded) (*command, error) {
	cmd := &command{
		control: c, link: l, recorded: recorded,
		acknowledged: make(chan struct{}), exited: make(chan struct{}),
		gone: make(chan struct{}), unknown: make(chan struct{}), code: -1,
	}
	fds, err := cmd.openPipes()
	defer func() { closeAll(fds) }()
	if err != nil {
		c.shelve(l)
		return nil, &SpawnError{Err: err}
	}
	l.serial++
	cmd.serial = l.serial
	r := request{serial: l.serial, shell: s.Shell, command: s.Command, dir: s.Dir, env: env}
	if len(s.Command) >= maxArgument() {
		script, err := newScript(s.Command)
		if err != nil {
			cmd.closePipes()
			c.shelve(l)
			return nil, &SpawnError{Err: err}
		}
		fds = append(fds, script)
		r.command = ""
	}
	err = l.ch.put(msgStart, r.encode(), fds...)
	if err == nil {
		err = cmd.awaitStart(ctx, s, env)
	} else {
		// A supervisor starts nothing before it has the whole request.
		err = &SpawnError{Err: fmt.Errorf("reach the supervisor: %w", err)}
		l.ch.close()
	}
	if err != nil {
		cmd.closePipes()
		return nil, err
	}
	c.mu.Lock()
	c.running[cmd] = struct{}{}
	late := c.closed
	c.mu.Unlock()
	c.work.Go(cmd.follow)
	if late {
		cmd.Release()
		return nil, fmt.Errorf("%w, and its command had begun: %w", ErrClosed, &SurvivorsError{})
	}
	return cmd, nil
}

// Close implements Control.
func (c *control) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	for _, l := range c.idle {
		l.ch.close()
	}
	c.idle = nil
	running := make([]*command, 0, len(c.running))
	for cmd := range c.running {
		running = append(running, cmd)
	}
	keeper := c.keeper
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), closeQuarters)
	defer cancel()
	var survivors []int
	var ending sync.WaitGroup
	var mu sync.Mutex
	for _, cmd := range running {
		ending.Go(func() {
			err := cmd.End(ctx, 0)
			cmd.Release()
			var alive *SurvivorsError
			if errors.As(err, &alive) {
				mu.Lock()
				survivors = append(survivors, alive.PIDs...)
				mu.Unlock()
			}
		})
	}
	ending.Wait()
	c.end()
	// The keeper ends when its channel does, once it has no child.
	_ = keeper.ch.f.SetReadDeadline(time.Now())
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		// Something that would not die holds it; the helpers go on without us.
	}
	if len(survivors) > 0 {
		return &SurvivorsError{PIDs: survivors}
	}
	return nil
}

// refusal turns what the supervisor met into what Start answers.
func refusal(stage int64, errno syscall.Errno, s *Spec, env []string) error {
	if stage == stageDir {
		e := &DirError{Dir: s.Dir, Reason: DirUnusable, Err: errno}
		switch errno {
		case unix.ENOENT:
			e.Reason = DirNotFound
		case unix.ENOTDIR:
			e.Reason = DirNotDirectory
		case unix.EACCES, unix.EPERM:
			e.Reason = DirPermission
		}
		return e
	}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.EPERM, unix.ENOEXEC, unix.ELOOP, unix.EISDIR, unix.ELIBBAD:
		return fmt.Errorf("%w: %s: %w", ErrShellUnavailable, s.Shell, errno)
	case unix.E2BIG:
		// All of it together is too much; the largest part is worth a name.
		name, size := largestVariable(env)
		if size < len(s.Command) && len(s.Command) < maxArgument() {
			return &SpawnError{Err: fmt.Errorf("the command (%d bytes): %w", len(s.Command), errno)}
		}
		return &SpawnError{Variable: name, Err: errno}
	}
	return &SpawnError{Err: errno}
}
