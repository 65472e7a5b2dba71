package process

import (
	"errors"
	"maps"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeper is the one child of the executor: it starts the supervisors and is
// the sub-reaper above them. When a command kills its own supervisor, what is
// left of it becomes the keeper's child, and as the keeper has no other
// children, it knows exactly what to end.
type keeper struct {
	ch          *channel
	executor    string
	supervisors map[int]bool // by pid; our children, so the number is theirs until reaped
	clean       int          // rounds of looking for orphans still to come out empty
	deadline    time.Time    // when the executor is gone: from then on supervisors are ended too

	stubborn map[proc]bool // what the last round found
	changed  time.Time     // when something else was found, or an orphan taken in
}

// cleanRounds in a row without an orphan count as settled. One round might
// miss what moves while it looks.
const cleanRounds = 2

func keep(ch *channel) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	inbox := listen(ch)
	k := &keeper{ch: ch, executor: os.Getenv(executorVariable), supervisors: make(map[int]bool)}
	k.attend(inbox, children)
}

// sweepInterval is how often a keeper looks for orphans while there may be some, and
// vainInterval how often once KILL has done nothing to them for a while.
const (
	sweepInterval = 5 * time.Millisecond
	vainInterval  = 500 * time.Millisecond
)

// attend goes on until the executor is gone and no child is left, or none that a
// signal ends: another user's, or one that is stuck in the kernel.
func (k *keeper) attend(inbox <-chan message, children <-chan os.Signal) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var due time.Time // zero: the timer is not set
	for {
		none := k.reap()
		if inbox == nil && (none || k.inVain() && time.Since(k.deadline) > closeQuarters) {
			return
		}
		if k.clean > 0 || inbox == nil {
			// It is never put off: in a storm of ends it would not go off at all.
			if at := time.Now().Add(k.interval()); due.IsZero() || at.Before(due) {
				due = at
				timer.Reset(time.Until(at))
			}
		}
		select {
		case m, ok := <-inbox:
			if !ok {
				// The supervisors see it too and end their trees.
				inbox = nil
				k.changed = time.Now()
				k.deadline = k.changed.Add(time.Second)
				break
			}
			k.obey(m)
		case <-children:
		case <-timer.C:
			due = time.Time{}
			k.sweep()
		}
	}
}

func (k *keeper) obey(m message) {
	defer closeAll(m.fds)
	switch {
	case m.kind == msgSpawn && len(m.fds) == 1:
		pid, err := startHelper(supervisorName, k.executor, m.fds[0])
		if err != nil {
			errno := unix.EINVAL
			errors.As(err, &errno)
			_ = k.ch.put(msgUnborn, numbers(int64(errno)))
			return
		}
		k.supervisors[pid] = true
		p, _ := readProc(pid) // cannot fail: it is our unreaped child
		_ = k.ch.put(msgBorn, numbers(int64(pid), int64(p.start)))
	case m.kind == msgKill:
		if pid := int(number(&m.payload)); k.supervisors[pid] {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// reap takes in every child that has ended, and looks for orphans whenever one
// of them was not a supervisor that ended by itself.
func (k *keeper) reap() (none bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			if k.clean > 0 {
				k.settle()
			}
			return true
		case pid == 0:
			return false
		case ws.Stopped():
			// A command stopped its own supervisor. Orphans may stay stopped.
			if k.supervisors[pid] {
				_ = unix.Kill(pid, unix.SIGCONT)
			}
			continue
		}
		if !k.supervisors[pid] || !ws.Exited() || ws.ExitStatus() != 0 {
			k.clean = cleanRounds
			k.changed = time.Now()
		}
		delete(k.supervisors, pid)
		_ = k.ch.put(msgDied, numbers(int64(pid), int64(ws)))
	}
}

// sweep is one round of KILL for orphans, and for everything once the
// executor is gone and its supervisors had their time.
func (k *keeper) sweep() {
	skip := func(p proc) bool { return k.supervisors[p.pid] }
	if !k.deadline.IsZero() && time.Now().After(k.deadline) {
		skip = nil
	}
	self := os.Getpid()
	found, err := descendants(self, skip)
	if err != nil {
		return
	}
	ids := make(map[proc]bool, len(found))
	for _, p := range found {
		ids[p.identity()] = true
		_ = signalDescendant(p, self, unix.SIGKILL)
	}
	if !maps.Equal(ids, k.stubborn) {
		k.stubborn, k.changed = ids, time.Now()
	}
	if len(found) > 0 {
		k.clean = cleanRounds
		return
	}
	if k.clean == 0 {
		return
	}
	if k.clean--; k.clean == 0 {
		k.settle()
	}
}

// inVain reports whether the same orphans have been killed for a while and live.
func (k *keeper) inVain() bool {
	return len(k.stubborn) > 0 && time.Since(k.changed) > closeQuarters
}

func (k *keeper) interval() time.Duration {
	if k.inVain() {
		return vainInterval
	}
	return sweepInterval
}

func (k *keeper) settle() {
	k.clean = 0
	_ = k.ch.put(msgSettled, nil)
}
