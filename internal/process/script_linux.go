package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// maxArgument is what the kernel takes as one argument or variable, with its
// final NUL.
func maxArgument() int { return 32 * os.Getpagesize() }

// scriptDescriptor is the place of a large script among a request's
// descriptors, behind stdout and stderr.
const scriptDescriptor = 2

// newScript puts a command that is too large for an argument into memory that
// has a descriptor. The shell reads it with `.` through the supervisor's /proc
// entry: so it gets no descriptor of its own, no variable, and the same $0. What
// differs from -c is what a shell does in a sourced file: `return` outside of a
// function ends the command, which -c refuses.
func newScript(text string) (fd int, err error) {
	const name = "command"
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, fmt.Errorf("memory for the command: %w", err)
	}
	for b := []byte(text); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			unix.Close(fd)
			return -1, fmt.Errorf("memory for the command: %w", err)
		}
		b = b[max(n, 0):]
	}
	return fd, nil
}
