package process

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// link is the executor's side of one supervisor.
type link struct {
	ch     *channel
	pid    int
	start  uint64
	serial uint64 // of the command it has or had last
	keeper *keeperLink

	// over is closed once the supervisor is reaped and, if it did not end by
	// itself, what it left behind is gone too. After that, statuses holds how
	// those processes ended.
	over     chan struct{}
	statuses map[int]syscall.WaitStatus
}

func (l *link) identity() proc { return proc{pid: l.pid, start: l.start} }

// keeperLink is the executor's side of the keeper.
type keeperLink struct {
	ch      *channel
	pid     int
	process *os.Process

	// gone is closed once the keeper has ended and is reaped.
	gone chan struct{}

	mu       sync.Mutex
	births   []*birth // supervisors asked for, in order
	lost     bool
	watched  map[int]*link              // living supervisors
	dead     []*link                    // killed ones whose orphans are being ended
	statuses map[int]syscall.WaitStatus // how orphans ended, since the last settlement
}

type birth struct {
	link *link
	done chan error // buffered
}

var errKeeperLost = errors.New("the keeper process was killed")

// startKeeper starts a keeper; serve must run.
func startKeeper(executor string) (*keeperLink, error) {
	ch, other, err := newChannelPair()
	if err != nil {
		return nil, err
	}
	pid, err := startHelper(keeperName, executor, other)
	syscall.Close(other)
	if err != nil {
		ch.close()
		return nil, err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		ch.close() // it ends with its channel
		return nil, err
	}
	return &keeperLink{
		ch: ch, pid: pid, process: process, gone: make(chan struct{}),
		watched: make(map[int]*link), statuses: make(map[int]syscall.WaitStatus),
	}, nil
}

// keepAwake continues the keeper whenever something has stopped it, until it has
// ended: nobody but its parent would, and a stopped keeper neither continues a
// stopped supervisor nor ends what a killed one leaves behind.
func (k *keeperLink) keepAwake() {
	for {
		// Nothing is taken in here: the end is for serve to learn, and a stop is
		// over, for waitid too, once it is continued.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, k.pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || info.Code != cldStopped:
			return
		case k.process.Signal(unix.SIGCONT) != nil:
			return
		}
	}
}

// cldStopped is a siginfo's code for a child that was stopped.
const cldStopped = 5

// serve reads what the keeper reports, until it has ended.
func (k *keeperLink) serve() {
	for {
		kind, payload, fds, err := k.ch.get()
		if err != nil {
			break
		}
		closeAll(fds)
		k.hear(kind, payload)
	}
	k.mu.Lock()
	k.lost = true
	for _, b := range k.births {
		b.done <- errKeeperLost
	}
	k.births = nil
	k.mu.Unlock()
	k.ch.close()
	_, _ = k.process.Wait() // how it ended tells nothing more
	close(k.gone)
}

func (k *keeperLink) hear(kind byte, payload []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch kind {
	case msgBorn, msgUnborn:
		if len(k.births) == 0 {
			return
		}
		b := k.births[0]
		k.births = k.births[1:]
		if kind == msgUnborn {
			b.done <- syscall.Errno(number(&payload))
			return
		}
		b.link.pid, b.link.start = int(number(&payload)), uint64(number(&payload))
		k.watched[b.link.pid] = b.link
		b.done <- nil
	case msgDied:
		pid, ws := int(number(&payload)), syscall.WaitStatus(number(&payload))
		l := k.watched[pid]
		delete(k.watched, pid)
		switch {
		case l == nil:
			k.statuses[pid] = ws
		case ws.Exited() && ws.ExitStatus() == 0:
			close(l.over) // it ends by itself only when nothing is left
		default:
			k.dead = append(k.dead, l)
		}
	case msgSettled:
		for _, l := range k.dead {
			l.statuses = k.statuses
			close(l.over)
		}
		k.dead, k.statuses = nil, make(map[int]syscall.WaitStatus)
	}
}

// request asks for one more supervisor.
func (k *keeperLink) request(executorEnd *channel, supervisorEnd int) (*birth, error) {
	b := &birth{
		link: &link{ch: executorEnd, keeper: k, over: make(chan struct{})},
		done: make(chan error, 1),
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost {
		return nil, errKeeperLost
	}
	if err := k.ch.put(msgSpawn, nil, supervisorEnd); err != nil {
		return nil, err
	}
	k.births = append(k.births, b)
	return b, nil
}

// kill ends a supervisor that does not answer; its tree falls to the keeper.
func (k *keeperLink) kill(pid int) { _ = k.ch.put(msgKill, numbers(int64(pid))) }

// supervises reports whether p is a supervisor, and one of which nothing else is
// known than that it lives.
func (k *keeperLink) supervises(p proc) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.watched[p.pid]
	return l != nil && l.start == p.start
}

// childless reports whether no supervisor of a keeper is alive, to the kernel's
// knowledge: a keeper that was killed tells nothing.
func (k *keeperLink) childless() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.watched {
		if sameAndAlive(l.identity()) {
			return false
		}
	}
	return true
}

// vouches reports whether pid is a living supervisor with a keeper above it. One
// whose keeper was killed ends its command as any other, but gets no next one: if
// it were killed too, nobody would hold what it leaves.
func (k *keeperLink) vouches(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.lost && k.watched[pid] != nil
}
