package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
)

// command is the executor's side of one command. follow owns the channel's
// reading side and is the only one to write what the closed channels publish.
type command struct {
	control        *control
	link           *link
	recorded       Recorded
	stdout, stderr *outputPipe
	shell          int
	serial         uint64

	acknowledged chan struct{} // the order to end arrived
	exited       chan struct{}
	gone         chan struct{}
	unknown      chan struct{} // what supervisor and keeper left when both were killed is not known to be dead

	code  int   // before exited is closed
	err   error // before exited is closed
	ended int   // before gone is closed

	release sync.Once
}

// openPipes makes the pipes and returns the ends that are the command's.
func (c *command) openPipes() (ends []int, err error) {
	for _, p := range []struct {
		name string
		pipe **outputPipe
	}{{"stdout", &c.stdout}, {"stderr", &c.stderr}} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			c.closePipes()
			return ends, fmt.Errorf("pipe: %w", err)
		}
		ends = append(ends, fds[1])
		_ = unix.SetNonblock(fds[0], true) // of the read end alone
		if *p.pipe, err = newOutputPipe(os.NewFile(uintptr(fds[0]), p.name)); err != nil {
			c.closePipes()
			return ends, err
		}
	}
	return ends, nil
}

func (c *command) closePipes() {
	for _, p := range []*outputPipe{c.stdout, c.stderr} {
		if p != nil {
			p.Close()
		}
	}
}

// startPatience is how long the supervisor's word on a start is waited for once
// nobody wants the command any more. The shell may run by then, and then that must
// be known: only a supervisor that is stuck in the folder takes longer.
const startPatience = time.Second

var errStillborn = errors.New("the supervisor process ended before it could begin (no more processes or threads allowed?)")

// awaitStart waits for the supervisor's word on the start.
func (c *command) awaitStart(ctx context.Context, s *Spec, env []string) error {
	f := c.link.ch.f
	armed := make(chan struct{})
	disarm := context.AfterFunc(ctx, func() {
		_ = f.SetReadDeadline(time.Now().Add(startPatience))
		close(armed)
	})
	ready := c.serial > 1 // it had a command before
	kind, payload, fds, err := c.link.ch.get()
	for err == nil && kind == msgReady {
		ready = true
		closeAll(fds)
		kind, payload, fds, err = c.link.ch.get()
	}
	closeAll(fds)
	if !disarm() { // the answer and the end of ctx crossed: the answer counts
		<-armed
		_ = f.SetReadDeadline(time.Time{})
	}
	switch {
	case err == nil && kind == msgStarted:
		c.shell = int(number(&payload))
		return nil
	case err == nil && kind == msgRefused:
		c.control.shelve(c.link)
		return refusal(number(&payload), syscall.Errno(number(&payload)), s, env)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ctx.Err()
	case !ready: // it reads no request before it has said so
		err = &SpawnError{Err: errStillborn}
	default:
		err = ErrLost
	}
	// Closing tells the supervisor to end what it may have started, and itself.
	c.link.ch.close()
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case <-c.link.over:
		return err
	case <-c.link.keeper.gone:
		ctx, cancel := context.WithTimeout(c.control.life, time.Second)
		defer cancel()
		if c.control.endAdopted(ctx, c.link, c.recorded) {
			return err
		}
		return &SurvivorsError{}
	case <-patience.C: // stuck in the folder, as on a dead mount
		return &SurvivorsError{PIDs: []int{c.link.pid}}
	}
}

// settled waits until what a killed supervisor left behind is gone, and reports
// false when its keeper was killed too. A keeper that does not get to it, because
// something of the command traces it, is helped: whoever traces it ends as well.
func (l *link) settled() bool {
	late := time.NewTicker(answerPatience)
	defer late.Stop()
	for {
		select {
		case <-l.over:
			return true
		case <-l.keeper.gone:
			return false
		case <-late.C:
			late.Reset(100 * time.Millisecond)
		}
		found, _ := descendants(l.keeper.pid, l.keeper.supervises)
		for _, p := range found {
			_ = signalIf(p, func(p proc) bool { return descends(p, l.keeper.pid) }, unix.SIGKILL)
		}
	}
}

// follow hears the supervisor out.
func (c *command) follow() {
	l := c.link
	acknowledged, exited, gone, spoilt := false, false, false, false
	for !gone {
		kind, payload, fds, err := l.ch.get()
		if err != nil {
			break
		}
		closeAll(fds)
		switch kind {
		case msgEnding:
			if !acknowledged {
				acknowledged = true
				close(c.acknowledged)
			}
		case msgExited:
			if !exited {
				exited = true
				c.code = int(number(&payload))
				close(c.exited)
			}
		case msgGone:
			c.ended = int(number(&payload))
			spoilt = number(&payload) != 0
			gone = true
		}
	}
	switch {
	case spoilt:
		l.ch.close() // it ends with its channel
	case gone:
		c.control.shelve(l) // from here on the channel is the next command's
	default:
		l.ch.close()
		if c.control.life.Err() == nil { // else by the keeper, as Close's last resort
			c.control.log.Warn("a command's supervisor was killed; ending what it left",
				"instruction", c.recorded.InstructionID, "pid", l.pid)
		}
		if !l.settled() && !c.control.endAdopted(c.control.life, l, c.recorded) {
			if !exited {
				c.err = ErrLost
				close(c.exited)
			}
			close(c.unknown)
			c.control.forget(c)
			return
		}
		c.ended = len(l.statuses)
		if !exited {
			if ws, ok := l.statuses[c.shell]; ok {
				c.code = exitCode(ws)
			} else {
				c.err = ErrLost
			}
			close(c.exited)
		}
	}
	c.control.forget(c)
	close(c.gone)
	c.control.after(c.recorded)
}

func (c *control) forget(cmd *command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, cmd)
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
	select {
	case <-c.exited:
		return c.code
	default:
		return -1
	}
}

// Err implements Command.
func (c *command) Err() error {
	select {
	case <-c.exited:
		return c.err
	default:
		return nil
	}
}

// Ended implements Command.
func (c *command) Ended() int {
	select {
	case <-c.gone:
		return c.ended
	default:
		return 0
	}
}

// answerPatience is how long a supervisor may take to confirm an order. One
// that takes longer was stopped by its own command.
const answerPatience = 2 * time.Second

// End implements Command.
func (c *command) End(ctx context.Context, grace time.Duration) error {
	if fault.On("process: nothing is ended") {
		return nil
	}
	grace = max(grace, 0)
	// When this fails the supervisor has ended, and follow knows why.
	_ = c.link.ch.put(msgEnd, numbers(int64(c.serial), int64(grace)))
	answer := time.NewTimer(answerPatience)
	defer answer.Stop()
	late := time.NewTimer(grace + answerPatience)
	defer late.Stop()
	limit := time.NewTimer(grace + closeQuarters)
	defer limit.Stop()
	acknowledged := c.acknowledged
	for {
		select {
		case <-c.gone:
			return nil
		case <-c.unknown:
			return &SurvivorsError{}
		case <-acknowledged:
			answer.Stop()
			acknowledged = nil
		case <-answer.C:
			c.link.keeper.kill(c.link.pid)
		case <-late.C:
			c.strike()
			late.Reset(100 * time.Millisecond)
		case <-limit.C:
			return c.survivors()
		case <-ctx.Done():
			return c.survivors()
		}
	}
}

// survivors names what is alive, or finds that nothing is.
func (c *command) survivors() error {
	found, _ := c.alive()
	e := &SurvivorsError{PIDs: pidsOf(found)}
	if len(e.PIDs) == 0 {
		patience := time.NewTimer(100 * time.Millisecond)
		defer patience.Stop()
		select {
		case <-c.gone:
			return nil
		case <-patience.C:
		}
	}
	return e
}

// alive lists what is alive of the command, and what it descends from.
func (c *command) alive() (found []proc, root int) {
	l := c.link
	if sameAndAlive(l.identity()) {
		found, _ = descendants(l.pid, nil)
		return found, l.pid
	}
	select {
	case <-l.keeper.gone:
		return c.control.adopted(), os.Getpid()
	default:
		found, _ = descendants(l.keeper.pid, l.keeper.supervises)
		return found, l.keeper.pid
	}
}

// strike sends KILL in the place of a supervisor that does not get to it: a command
// can take its right to open files, as it can stop or trace it.
func (c *command) strike() {
	found, root := c.alive()
	for _, p := range found {
		_ = signalIf(p, func(p proc) bool { return descends(p, root) }, unix.SIGKILL)
	}
}

// Leftovers implements Command.
func (c *command) Leftovers() int {
	select {
	case <-c.gone:
		return 0
	default:
	}
	n := 0
	found, _ := c.alive()
	for _, p := range found {
		if p.pid != c.shell {
			n++
		}
	}
	return n
}

// Release implements Command.
func (c *command) Release() {
	c.release.Do(func() {
		c.closePipes()
		select {
		case <-c.gone:
		default:
			if fault.On("process: nothing is ended") {
				return
			}
			_ = c.link.ch.put(msgEnd, numbers(int64(c.serial), 0))
		}
	})
}
