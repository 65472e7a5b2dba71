package posix

import (
	"errors"

	"golang.org/x/sys/unix"
)

// A file system in user space may give a call up when a signal comes, and Go's own
// runtime sends signals. So every call that may reach one is made again: what was
// given up was not done.

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// again is retry for a call that answers nothing.
func again(call func() error) error {
	_, err := retry(func() (int, error) { return 0, call() })
	return err
}

// Write writes to an open file, once: less than all of b may be written.
func Write(fd int, b []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Write(fd, b) })
	return max(n, 0), err
}

// Close closes a descriptor. One whose close was interrupted is closed.
func Close(fd int) error {
	if err := unix.Close(fd); !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}

// Truncate cuts an open file to a length in bytes.
func Truncate(fd int, length int64) error {
	return again(func() error { return unix.Ftruncate(fd, length) })
}
