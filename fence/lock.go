package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/sema-agent/device-executor/internal/fault"
)

// How long Lock tries. Whoever probes holds the lock for an instant.
const (
	lockPatience = 300 * time.Millisecond
	lockPause    = 10 * time.Millisecond
)

// HeldError reports that another process holds the lock.
type HeldError struct {
	Path string
	PID  int // 0: the holder left no readable number
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: another executor holds it", e.Path)
	}
	return fmt.Sprintf("lock %s: another executor (process %d) holds it", e.Path, e.PID)
}

// InstanceLock is the lock of one device on this machine.
//
// It belongs to the open file, so it is free once every descriptor of that file is
// closed: by Unlock, or by the kernel however the process ends. The descriptor is
// close-on-exec, so what the process starts holds it between fork and exec only,
// and a crash frees the lock though commands live on. The file itself stays for
// good: removing it would let two processes lock two files of one name.
type InstanceLock struct {
	lock    *flock.Flock
	path    string
	machine []*flock.Flock // that go by the device, see LockDevice
}

// inHand keeps the locks of this process reachable. Without it a caller who forgets
// one would lose it at some later garbage collection, when its file is closed.
var inHand sync.Map

// Lock takes the lock at path, creating the file (0600) in an existing folder. If the
// disk has room it writes the pid of this process into it, and beside it what names
// the process for good. It tries for 300 ms, then returns a *HeldError; and at once
// if the lock is free and what is beside it names a process that lives: of a lock
// whose file was removed, or of the folder that this one is a copy of.
func Lock(path string) (*InstanceLock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	l := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := l.TryLockContext(ctx, lockPause)
	if fault.On("fence: no instance lock") {
		ok, err = true, nil
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		_ = l.Close()
		return nil, &HeldError{Path: path, PID: holder(path)}
	case err != nil || !ok:
		_ = l.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if pid := recordedHolder(path); pid != 0 && pid != os.Getpid() && !fault.On("fence: no instance lock") {
		_ = l.Close()
		return nil, &HeldError{Path: path, PID: pid}
	}
	// The pid is for the message of others only, but without it that message is poor.
	// On a full disk it has to be: commands may be what frees some.
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil && !noRoom(err) {
		_ = l.Close()
		return nil, fmt.Errorf("lock %s: write the pid: %w", path, err)
	}
	recordHolder(path)
	held := &InstanceLock{lock: l, path: path}
	inHand.Store(held, true)
	return held, nil
}

// Unlock frees the lock. The file stays, empty.
func (l *InstanceLock) Unlock() error {
	inHand.Delete(l)
	_ = os.Remove(holderPath(l.path)) // first: whoever finds the lock free may have it
	for _, m := range l.machine {
		freeMachineLock(m)
	}
	_ = os.Truncate(l.path, 0) // a stale pid in a free lock misleads nobody: best effort
	if err := l.lock.Unlock(); err != nil {
		return fmt.Errorf("unlock %s: %w", l.path, err)
	}
	return nil
}

// Probe reports whether a process holds the lock at path, and its pid (0 when it
// left none). It creates nothing; a free lock, or a missing file, is held by whoever
// Lock would name. Asking takes the lock, shared, for an instant.
func Probe(path string) (held bool, pid int, err error) {
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	ok, err := l.TryRLock()
	defer l.Close()
	switch {
	case ok, errors.Is(err, fs.ErrNotExist):
		pid := recordedHolder(path)
		return pid != 0, pid, nil
	case err != nil:
		return false, 0, fmt.Errorf("probe lock %s: %w", path, err)
	}
	return true, holder(path), nil
}

// holder reads the pid in a lock file.
func holder(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}
