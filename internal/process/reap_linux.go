package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reapStrangers reaps what has become a child of this process without having been
// started by it: what a command leaves that killed both its helpers and, for PID 1,
// as in a container, every orphan of the machine. It reaps each by its number, and
// leaves alone what somebody in this program waits for: a child of ours is reaped
// within moments of its end, so only what is still a zombie at a second look is a
// stranger.
func reapStrangers(stop <-chan struct{}, ours func(pid int) bool) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	const interval = time.Second
	seen := map[proc]bool{}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		next := map[proc]bool{}
		for _, p := range zombieChildren() {
			switch {
			case ours(p.pid):
			case seen[p]:
				_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
			default:
				next[p] = true
			}
		}
		seen = next
		if len(seen) > 0 {
			timer.Reset(interval)
			continue
		}
		select {
		case <-stop:
			return
		case <-children:
			timer.Reset(interval)
		}
	}
}

func zombieChildren() []proc {
	pids, err := allPIDs()
	if err != nil {
		return nil
	}
	var zombies []proc
	for _, pid := range pids {
		p, err := readProc(pid)
		if err == nil && p.ppid == os.Getpid() && !p.live() {
			zombies = append(zombies, p)
		}
	}
	return zombies
}
