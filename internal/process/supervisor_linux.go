package process

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long KILL is tried at close quarters; after that, twice a second.
const closeQuarters = 5 * time.Second

// supervisor is the process above one command: the sub-reaper of its tree,
// which reports how the shell ended and ends the tree on order, or when its
// executor is gone. When nothing of the command is left, it is ready for the
// next one. One goroutine owns all of it.
type supervisor struct {
	ch     *channel
	inbox  <-chan message // nil when the executor is gone
	serial uint64

	standing standing // what it was started with
	shell    int
	script   int // descriptor of a large command, -1 if there is none
	exited   bool

	killing time.Time // zero: not yet; in the future: TERM was sent, grace runs
	began   time.Time // of killing
	pause   time.Duration
	ended   map[proc]struct{} // what was signalled after the shell had ended
}

type message struct {
	kind    byte
	payload []byte
	fds     []int
}

// listen turns a channel into Go's kind; it is closed when the peer is gone.
func listen(ch *channel) <-chan message {
	out := make(chan message)
	go func() {
		defer close(out)
		for {
			kind, payload, fds, err := ch.get()
			if err != nil {
				return
			}
			out <- message{kind, payload, fds}
		}
	}()
	return out
}

func supervise(ch *channel) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	inbox := listen(ch)
	own := standingNow()
	_ = ch.put(msgReady, nil)
	for m := range inbox {
		if m.kind != msgStart {
			closeAll(m.fds)
			continue // an order for a command that is over
		}
		s := &supervisor{ch: ch, inbox: inbox, standing: own, script: -1, ended: make(map[proc]struct{})}
		if s.start(m) {
			s.attend(children)
		}
	}
}

// attend stays with the command until nothing of it is left.
func (s *supervisor) attend(children <-chan os.Signal) {
	timer := time.NewTimer(time.Hour)
	timer.Stop() // until somebody wants the command ended: it may run for days
	defer timer.Stop()
	for !s.reap() {
		select {
		case m, ok := <-s.inbox:
			if !ok {
				s.inbox = nil
				s.end(0)
				break
			}
			s.obey(m)
		case <-children:
			continue // reap, and leave the timer as it is
		case <-timer.C:
			s.sweep()
		}
		if !s.killing.IsZero() {
			timer.Reset(max(time.Until(s.killing), s.pause))
		}
	}
	if s.script >= 0 {
		unix.Close(s.script)
	}
	changed := int64(0)
	if standingNow() != s.standing {
		changed = 1
	}
	s.tell(msgGone, int64(len(s.ended)), changed)
}

func (s *supervisor) obey(m message) {
	defer closeAll(m.fds)
	serial, grace := number(&m.payload), number(&m.payload)
	if m.kind == msgEnd && uint64(serial) == s.serial {
		s.tell(msgEnding)
		s.end(time.Duration(grace))
	}
}

func (s *supervisor) tell(kind byte, ns ...int64) {
	_ = s.ch.put(kind, numbers(ns...)) // a lost executor shows on the reading side
}

// Stages of a start that was refused.
const (
	stageDir int64 = iota
	stageExec
)

// start starts the shell, or says why not.
func (s *supervisor) start(m message) bool {
	fds := m.fds
	defer func() { closeAll(fds) }()
	r, err := decodeRequest(m.payload)
	if err != nil || len(fds) < scriptDescriptor {
		s.refuse(stageExec, unix.EINVAL)
		return false
	}
	s.serial = r.serial
	command := r.command
	if len(fds) > scriptDescriptor {
		command = ". /proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(fds[scriptDescriptor])
	}
	// Going there ourselves tells trouble with the folder from trouble with
	// the shell.
	if err := unix.Chdir(r.dir); err != nil {
		s.refuse(stageDir, err)
		return false
	}
	defer func() { _ = unix.Chdir("/") }() // do not keep the folder busy
	pid, err := forkShell(r, command, m.fds[0], m.fds[1])
	if err != nil {
		s.refuse(stageExec, err)
		return false
	}
	s.shell = pid
	if len(fds) > scriptDescriptor { // the shell opens it through our /proc entry
		s.script, fds = fds[scriptDescriptor], fds[:scriptDescriptor]
	}
	s.tell(msgStarted, int64(pid))
	return true
}

func (s *supervisor) refuse(stage int64, err error) {
	errno := unix.EINVAL
	errors.As(err, &errno)
	s.tell(msgRefused, stage, int64(errno))
}

// reap takes in every child that has ended and reports whether none is left.
// Every orphan of the tree becomes our child, so "no child" means "nothing
// left", and it is the kernel that says so.
func (s *supervisor) reap() (none bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return true
		case pid == 0:
			return false
		case ws.Stopped(): // of what asked its parent to trace it; it stays until it is killed
		case pid == s.shell && !s.exited:
			s.exited = true
			s.tell(msgExited, int64(exitCode(ws)))
		}
	}
}

// end starts the ending, or brings the KILL of the running one forward.
func (s *supervisor) end(grace time.Duration) {
	kill := time.Now().Add(grace)
	if !s.killing.IsZero() && s.killing.Before(kill) {
		return
	}
	if s.killing.IsZero() && grace > 0 {
		s.signal(unix.SIGTERM, unix.SIGCONT)
	}
	s.killing = kill
	if grace <= 0 {
		s.sweep()
	}
}

// sweep is one round of KILL. What is born meanwhile is met in the next one.
func (s *supervisor) sweep() {
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	}
	s.signal(unix.SIGKILL)
	switch {
	case now.Sub(s.began) > closeQuarters:
		s.pause = 500 * time.Millisecond
	case s.pause == 0:
		s.pause = time.Millisecond
	default:
		s.pause = min(2*s.pause, 20*time.Millisecond)
	}
}

// signal reaches every live descendant, parents first: a shell should not see
// its child end and go on to the next command.
func (s *supervisor) signal(signals ...unix.Signal) {
	self := os.Getpid()
	found, err := descendants(self, nil)
	if err != nil {
		return
	}
	for _, p := range found {
		if s.exited {
			s.ended[p.identity()] = struct{}{}
		}
		_ = signalDescendant(p, self, signals...) // EPERM: another user's; it shows as a survivor
	}
}

// signalDescendant signals a process below us. A child of ours cannot have had
// its number reused: nobody but the caller reaps it.
func signalDescendant(p proc, self int, signals ...unix.Signal) error {
	if p.ppid != self {
		return signalIf(p, func(p proc) bool { return descends(p, self) }, signals...)
	}
	for _, sig := range signals {
		if err := unix.Kill(p.pid, sig); err != nil {
			return err
		}
	}
	return nil
}
