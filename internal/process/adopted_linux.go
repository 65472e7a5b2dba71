package process

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The executor is the sub-reaper above its keeper: what a command leaves that has
// killed its supervisor and the keeper too becomes a child of this process.

// adopt makes this process a sub-reaper, and remembers the children it has already.
func (c *control) adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	self := os.Getpid()
	p, err := readProc(self)
	if err != nil {
		return err
	}
	c.session = p.session
	found, err := descendants(self, nil)
	c.older = make(map[proc]bool, len(found))
	for _, p := range found {
		c.older[p.identity()] = true
	}
	return err
}

// adopted lists what has fallen to this process: its descendants, less the helpers
// with what they hold, less what was there before the first of them, and less what
// this program started by itself. That has this program's session, into which
// nothing of a command gets: a shell begins with a session of its own.
//
// All of it belongs to commands that have lost both their helpers, and is to end.
func (c *control) adopted() []proc {
	found, err := descendants(os.Getpid(), func(p proc) bool {
		return p.session == c.session || c.older[p.identity()] || c.helper(p)
	})
	if err != nil {
		return nil
	}
	return found
}

// helper reports whether p is a keeper or a living supervisor of ours. One that
// was born under the lock is known once the lock is had.
func (c *control) helper(p proc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range append(c.lost[:len(c.lost):len(c.lost)], c.keeper) {
		if k.pid == p.pid || k.supervises(p) {
			return true
		}
	}
	return false
}

// endAdopted ends what was left by a command that killed its supervisor and the
// keeper, and reports whether nothing of it is left. It goes on until then, or
// until ctx ends.
//
// To PID 1 fall the orphans of the whole machine, and whose they are is not known:
// there only what carries the command's marker is ended, and the rest is doubted.
func (c *control) endAdopted(ctx context.Context, l *link, r Recorded) bool {
	self := os.Getpid()
	if self == 1 {
		ctx, cancel := context.WithTimeout(ctx, closeQuarters)
		defer cancel()
		endMarked(ctx, []Recorded{r})
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	began, pause := time.Now(), time.Millisecond
	for clean := 0; clean < cleanRounds; clean++ {
		if sameAndAlive(l.identity()) { // its channel is closed, its children not yet given away
			clean = -1
		}
		for _, p := range c.adopted() {
			clean = -1
			_ = signalIf(p, func(p proc) bool { return descends(p, self) }, unix.SIGKILL)
		}
		if wait(ctx, pause) != nil {
			return false
		}
		pause = min(2*pause, 20*time.Millisecond)
		if time.Since(began) > closeQuarters {
			pause = 500 * time.Millisecond
		}
	}
	return true
}
