package fence

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/gofrs/flock"

	"github.com/sema-agent/device-executor/internal/fault"
)

// LockDevice takes the lock at path, as Lock does, and the locks of this device on
// this machine (§6.10), which go by its id alone: they hold off an executor of a copy
// of the device's folder, and one that finds another file at path.
//
// These are in $XDG_RUNTIME_DIR/sema and in the temporary folder's sema-UID, as far
// as these are there and nobody else's; two executors meet as long as they have one
// of the two in common. Trouble with them is no reason not to start.
func LockDevice(path, deviceID string) (*InstanceLock, error) {
	var all []*flock.Flock
	giveUp := func() {
		for _, l := range all {
			freeMachineLock(l)
		}
	}
	for _, dir := range machineFolders() {
		l, err := machineLock(dir, deviceID)
		if held := (*HeldError)(nil); errors.As(err, &held) {
			giveUp()
			return nil, held
		}
		if err == nil {
			all = append(all, l)
		}
	}
	held, err := Lock(path)
	if err != nil {
		giveUp()
		return nil, err
	}
	held.machine = all
	return held, nil
}

// ProbeDevice is Probe for a lock that was taken by LockDevice: where nobody holds
// the one at path, it asks those on the machine. Where these cannot be asked, nobody
// holds them.
func ProbeDevice(path, deviceID string) (held bool, pid int, err error) {
	if held, pid, err = Probe(path); held || err != nil {
		return held, pid, err
	}
	for _, dir := range machineFolders() {
		if !ours(dir) {
			continue
		}
		path := machinePath(dir, deviceID)
		l := flock.New(path, flock.SetFlag(os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK))
		free, err := l.TryRLock()
		_ = l.Close()
		if err == nil && !free {
			return true, holder(path), nil
		}
	}
	return false, 0, nil
}

// machineFolders are the folders for locks of this user on this machine.
func machineFolders() []string {
	if fault.On("fence: no instance lock") {
		return nil
	}
	var dirs []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && ours(dir) {
		dirs = append(dirs, filepath.Join(dir, "sema"))
	}
	return append(dirs, filepath.Join(os.TempDir(), "sema-"+strconv.Itoa(os.Geteuid())))
}

// ours reports whether there is a folder that belongs to this user and is closed to
// everybody else. Another's locks would keep us from serving for as long as he likes.
func ours(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && info.Mode().Perm()&0o077 == 0 && int(stat.Uid) == os.Geteuid()
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// machinePath is the lock of a device in a folder.
func machinePath(dir, deviceID string) string {
	if !plainID.MatchString(deviceID) {
		sum := sha256.Sum256([]byte(deviceID))
		deviceID = "sha256-" + hex.EncodeToString(sum[:])
	}
	return filepath.Join(dir, deviceID+".lock")
}

// machineLock takes the lock of a device in a folder, which it makes if need be. The
// error is a *HeldError, or says why there is none here.
func machineLock(dir, deviceID string) (*flock.Flock, error) {
	path := machinePath(dir, deviceID)
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	for {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if !ours(dir) {
			return nil, fs.ErrPermission
		}
		l := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW), flock.SetPermissions(0o600))
		_, err := l.TryLockContext(ctx, lockPause)
		if err == nil && names(path, l) {
			// Best effort, as in Lock: for the message of others.
			_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
			sweepMachineLocks(dir)
			return l, nil
		}
		_ = l.Close()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, &HeldError{Path: path, PID: holder(path)}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		// Whoever held it took the file, or the folder, with him: once more.
	}
}

// sweepMachineLocks removes what executors left that did not come to their end: the
// locks that nobody holds, some at a time.
func sweepMachineLocks(dir string) {
	folder, err := os.Open(dir)
	if err != nil {
		return
	}
	defer folder.Close()
	left, _ := folder.Readdirnames(100)
	for _, name := range left {
		l := flock.New(filepath.Join(dir, name), flock.SetFlag(os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK))
		if free, err := l.TryLock(); free && err == nil && names(l.Path(), l) {
			_ = os.Remove(l.Path())
		}
		_ = l.Close()
	}
}

// names reports whether the file that was locked still has its name.
func names(path string, l *flock.Flock) bool {
	named, err := os.Lstat(path)
	if err != nil {
		return false
	}
	locked, err := l.Stat()
	return err == nil && os.SameFile(named, locked)
}

// freeMachineLock frees a lock and leaves nothing of it. The file goes while it is
// locked: whoever locks it later finds that it has no name any more.
func freeMachineLock(l *flock.Flock) {
	if names(l.Path(), l) {
		_ = os.Remove(l.Path())
	}
	_ = os.Remove(filepath.Dir(l.Path())) // fails while others have theirs in it
	_ = l.Close()
}
