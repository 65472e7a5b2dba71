package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/process/lineage"
)

type control struct {
	cfg    Config
	log    *slog.Logger
	bootID string
	self   lineage.ID

	mu      sync.Mutex
	closed  bool
	running map[*command]struct{}
	work    sync.WaitGroup
}

// New returns the Control of this machine.
func New(cfg Config) (Control, error) {
	boot, err := BootID()
	if err != nil {
		return nil, fmt.Errorf("process control: boot id: %w", err)
	}
	self, err := self()
	if err != nil {
		return nil, fmt.Errorf("process control: process table: %w", err)
	}
	c := &control{cfg: cfg, log: cfg.Log, bootID: boot, self: self, running: make(map[*command]struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	// A signal that is ignored, as under nohup, would stay so in commands; one
	// that is handled is reset by exec.
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	return c, nil
}

// BootID names the boot of this machine, as [Recorded] has it.
func BootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }

// RunIfSupervisor has nothing to do on macOS, which has no helper processes.
func RunIfSupervisor() {}

// Level implements Control.
func (c *control) Level() string { return LevelGroup }

// Start implements Control.
func (c *control) Start(ctx context.Context, s Spec) (Command, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkDir(s.Dir); err != nil {
		return nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	recorded := Recorded{InstructionID: s.InstructionID, BootID: c.bootID, PID: c.self.PID, StartTime: c.self.Start}
	if c.cfg.Before != nil {
		if err := c.cfg.Before(recorded); err != nil {
			return nil, err
		}
	}
	cmd, err := startCommand(c, &s, recorded)
	if err != nil {
		if !errors.Is(err, ErrLost) {
			c.after(recorded)
		}
		return nil, err
	}
	c.recordShell(cmd)
	c.mu.Lock()
	c.running[cmd] = struct{}{}
	closed = c.closed
	c.mu.Unlock()
	c.work.Go(cmd.attend)
	if closed {
		cmd.Release()
		return nil, fmt.Errorf("%w, and its command had begun: %w", ErrClosed, &SurvivorsError{})
	}
	return cmd, nil
}

// recordShell puts the shell, by which all of its session can be found, in the place of
// the executor, which stood for it before it was there. Where that cannot be written,
// the marker has to do.
func (c *control) recordShell(cmd *command) {
	if c.cfg.Before == nil {
		return
	}
	shell := cmd.recorded
	shell.PID, shell.StartTime = cmd.shell.PID, cmd.shell.Start
	if err := c.cfg.Before(shell); err != nil {
		c.log.Warn("a command's shell was not recorded", "id", shell.InstructionID, "err", err)
		return
	}
	c.after(cmd.recorded)
	cmd.recorded = shell
}

func (c *control) after(r Recorded) {
	if c.cfg.After != nil {
		c.cfg.After(r)
	}
}

func (c *control) forget(cmd *command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, cmd)
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = unix.Access(dir, unix.X_OK)
	}
	if err == nil {
		return nil
	}
	e := &DirError{Dir: dir, Reason: DirUnusable, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Reason = DirNotFound
	case errors.Is(err, unix.ENOTDIR):
		e.Reason = DirNotDirectory
	case errors.Is(err, os.ErrPermission):
		e.Reason = DirPermission
	}
	return e
}

// Close implements Control.
func (c *control) Close() error {
	c.mu.Lock()
	c.closed = true
	running := make([]*command, 0, len(c.running))
	for cmd := range c.running {
		running = append(running, cmd)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeQuarters)
	defer cancel()
	var survivors []int
	for _, cmd := range running {
		cmd.order(0)
	}
	for _, cmd := range running {
		var alive *SurvivorsError
		if errors.As(cmd.End(ctx, 0), &alive) {
			survivors = append(survivors, alive.PIDs...)
		}
		cmd.Release()
	}
	if len(survivors) > 0 {
		return &SurvivorsError{PIDs: survivors}
	}
	c.work.Wait()
	return nil
}

// closeQuarters is how long KILL is tried before survivors are named.
const closeQuarters = 5 * time.Second
