package place

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
)

// turns lets the steps on one folder happen one after the other. A step that is
// stuck in the kernel holds up its folder only.
type turns struct {
	mu    sync.Mutex
	taken map[folderID]*turn
}

func newTurns() turns { return turns{taken: map[folderID]*turn{}} }

type folderID struct{ dev, ino uint64 }

type turn struct {
	token chan struct{} // holds one when the turn is free
	users int
}

// take waits for the turn on a folder. The context's cause is the error.
func (t *turns) take(ctx context.Context, dir *posix.Dir) (release func(), err error) {
	st, err := posix.StatFd(dir.FD)
	if err != nil {
		return nil, err
	}
	id := folderID{st.Dev, st.Ino}
	t.mu.Lock()
	own := t.taken[id]
	if own == nil {
		own = &turn{token: make(chan struct{}, 1)}
		own.token <- struct{}{}
		t.taken[id] = own
	}
	own.users++
	t.mu.Unlock()

	leave := func() {
		t.mu.Lock()
		if own.users--; own.users == 0 {
			delete(t.taken, id)
		}
		t.mu.Unlock()
	}
	select {
	case <-own.token:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	release = func() { own.token <- struct{}{}; leave() }
	if ctx.Err() != nil { // both were so
		release()
		return nil, context.Cause(ctx)
	}
	return release, nil
}

// lockPoll is how often a lock that another process holds is asked for again.
const lockPoll = 5 * time.Millisecond

// lockFolder takes the advisory lock that keeps other executors out of an
// exchange. A folder that cannot be read, or a file system without such locks, is
// left unlocked: the exchange is safe without, against everyone but an executor in
// the middle of its own.
func lockFolder(ctx context.Context, c posix.Calls, dir *posix.Dir) (unlock func(), err error) {
	fd, err := posix.Reopen(c, dir.FD, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return func() {}, nil
	}
	for {
		switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { unix.Close(fd) }, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			select {
			case <-time.After(lockPoll):
			case <-ctx.Done():
				unix.Close(fd)
				return nil, context.Cause(ctx)
			}
		default:
			unix.Close(fd)
			return func() {}, nil
		}
	}
}
