package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/process/lineage"
)

// command is one command. attend, its one goroutine, owns what the closed channels
// publish.
type command struct {
	control        *control
	recorded       Recorded
	stdout, stderr *outputPipe
	process        *os.Process
	shell          lineage.ID

	orders chan time.Duration // to end, with this grace
	exited chan struct{}
	gone   chan struct{}
	code   int
	err    error
	ended  map[lineage.ID]bool

	mu   sync.Mutex
	tree *lineage.Tree

	release sync.Once
}

// largeCommand goes to the shell through a file: all arguments and variables
// together may have 1 MiB.
const largeCommand = 256 << 10

func startCommand(c *control, s *Spec, recorded Recorded) (*command, error) {
	cmd := &command{
		control: c, recorded: recorded,
		orders: make(chan time.Duration), exited: make(chan struct{}), gone: make(chan struct{}),
		code: -1, ended: make(map[lineage.ID]bool),
	}
	files := make([]*os.File, 0, 4)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	fail := func(err error) (*command, error) {
		cmd.closePipes()
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fail(&SpawnError{Err: err})
	}
	files = append(files, null)
	for _, pipe := range []**outputPipe{&cmd.stdout, &cmd.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(&SpawnError{Err: err})
		}
		files = append(files, w)
		if *pipe, err = newOutputPipe(r); err != nil {
			return fail(&SpawnError{Err: err})
		}
	}
	text := s.Command
	if len(text) > largeCommand {
		script, err := newScript(text)
		if err != nil {
			return fail(&SpawnError{Err: err})
		}
		files = append(files, script)
		text = ". /dev/fd/3"
	}
	env := s.environ()
	before, err := table()
	if err != nil {
		return fail(&SpawnError{Err: fmt.Errorf("process table: %w", err)})
	}
	cmd.process, err = os.StartProcess(s.Shell, []string{s.Shell, "-c", text}, &os.ProcAttr{
		Dir: s.Dir, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fail(refusal(err, s, env))
	}
	if cmd.shell, err = startedChild(cmd.process.Pid); err != nil {
		_ = unix.Kill(-cmd.process.Pid, unix.SIGKILL)
		_, _ = cmd.process.Wait()
		return fail(fmt.Errorf("%w: it is not in the process table: %w", ErrLost, err))
	}
	cmd.tree = lineage.Follow(cmd.shell, Marker+"="+recorded.InstructionID, before, os.Getpid())
	return cmd, nil
}

// startedChild is startedAt of a child that was not collected yet: its number is its
// own, even if it has ended. One that is just ending is in no list of the kernel for a
// moment.
func startedChild(pid int) (id lineage.ID, err error) {
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for range 1000 {
		if id, err = startedAt(pid); err == nil {
			break
		}
		<-pause.C
	}
	return id, err
}

// newScript is a nameless file with the command; its first words close the
// descriptor it is read from.
func newScript(text string) (*os.File, error) {
	f, err := os.CreateTemp("", "sema-command-")
	if err != nil {
		return nil, fmt.Errorf("file for the command: %w", err)
	}
	_, err = f.WriteString("exec 3<&-;" + text)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		f.Close()
		return nil, fmt.Errorf("file for the command: %w", err)
	}
	return f, nil
}

func refusal(err error, s *Spec, env []string) error {
	switch {
	case errors.Is(err, unix.E2BIG):
		name, _ := largestVariable(env)
		return &SpawnError{Variable: name, Err: unix.E2BIG}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, os.ErrPermission), errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("%w: %s: %w", ErrShellUnavailable, s.Shell, err)
	}
	return &SpawnError{Err: err}
}

func (c *command) closePipes() {
	for _, p := range []*outputPipe{c.stdout, c.stderr} {
		if p != nil {
			p.Close()
		}
	}
}

const (
	// lookInterval is how often the process table is read while something is to end.
	lookInterval = 25 * time.Millisecond
	// watchInterval is how often it is read while the command runs: whatever leaves the
	// session and then loses its parent is found again only if it was seen before.
	watchInterval = 500 * time.Millisecond
)

// attend stays with the command until nothing of it can be found.
func (c *command) attend() {
	status := make(chan error, 1)
	go func() {
		state, err := c.process.Wait()
		if err == nil {
			ws := state.Sys().(syscall.WaitStatus)
			if c.code = ws.ExitStatus(); ws.Signaled() {
				c.code = 128 + int(ws.Signal())
			}
		}
		status <- err
	}()
	timer := time.NewTimer(watchInterval)
	defer timer.Stop()
	exited := false
	var kill time.Time
	for {
		select {
		case c.err = <-status:
			exited = true
			close(c.exited)
		case grace := <-c.orders:
			when := time.Now().Add(grace)
			if kill.IsZero() && grace > 0 {
				c.signal(exited, unix.SIGTERM, unix.SIGCONT)
			}
			if kill.IsZero() || when.Before(kill) {
				kill = when
			}
		case <-timer.C:
		}
		if !kill.IsZero() && !time.Now().Before(kill) {
			c.signal(exited, unix.SIGKILL)
		}
		live, err := c.look()
		if exited && err == nil && len(live) == 0 {
			break
		}
		pause := watchInterval
		if exited || !kill.IsZero() {
			pause = lookInterval
		}
		timer.Reset(pause)
	}
	c.control.forget(c)
	close(c.gone)
	c.control.after(c.recorded)
}

// look finds the live processes of the command.
func (c *command) look() ([]lineage.Proc, error) {
	now, err := table()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tree.Look(now, kernel{}), nil
}

func (c *command) signal(exited bool, signals ...unix.Signal) {
	live, _ := c.look() // without a table there is another look soon
	slices.SortFunc(live, func(a, b lineage.Proc) int { return a.PID - b.PID })
	for _, p := range live {
		if exited {
			c.ended[p.ID] = true
		}
		signalAgain(p, signals...)
	}
}

func (c *command) isExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// Stdout implements Command.
func (c *command) Stdout() Pipe { return c.stdout }

// Stderr implements Command.
func (c *command) Stderr() Pipe { return c.stderr }

// Exited implements Command.
func (c *command) Exited() <-chan struct{} { return c.exited }

// Gone implements Command.
func (c *command) Gone() <-chan struct{} { return c.gone }

// ExitCode implements Command.
func (c *command) ExitCode() int {
	if !c.isExited() {
		return -1
	}
	return c.code
}

// Err implements Command.
func (c *command) Err() error {
	if !c.isExited() {
		return nil
	}
	return c.err
}

// Ended implements Command.
func (c *command) Ended() int {
	select {
	case <-c.gone:
		return len(c.ended)
	default:
		return 0
	}
}

// Leftovers implements Command.
func (c *command) Leftovers() (n int) {
	live, _ := c.look()
	for _, p := range live {
		if p.ID != c.shell {
			n++
		}
	}
	return n
}

// order hands attend an order to end; it takes it unless all is over.
func (c *command) order(grace time.Duration) {
	select {
	case c.orders <- max(grace, 0):
	case <-c.gone:
	}
}

// End implements Command.
func (c *command) End(ctx context.Context, grace time.Duration) error {
	c.order(grace)
	limit := time.NewTimer(max(grace, 0) + closeQuarters)
	defer limit.Stop()
	select {
	case <-c.gone:
		return nil
	case <-limit.C:
	case <-ctx.Done():
	}
	e := &SurvivorsError{}
	pids := make(map[int]bool)
	live, _ := c.look()
	for _, p := range live {
		pids[p.PID] = true
	}
	e.PIDs = slices.Sorted(maps.Keys(pids))
	return e
}

// Release implements Command.
func (c *command) Release() {
	c.release.Do(func() {
		c.closePipes()
		c.order(0)
	})
}
