package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// outputPipe is the read end of one pipe: not blocking, and known to the
// runtime's poller, so that a deadline or Close ends a waiting Read.
type outputPipe struct {
	*os.File
	raw syscall.RawConn
}

// newOutputPipe takes over a read end that is not blocking.
func newOutputPipe(f *os.File) (*outputPipe, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("pipe: %w", err)
	}
	return &outputPipe{File: f, raw: raw}, nil
}

// ReadAvailable implements Pipe.
func (p *outputPipe) ReadAvailable(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	var n int
	var readErr error
	// Control, unlike Read, neither waits nor looks at the deadline.
	err := p.raw.Control(func(fd uintptr) {
		for {
			n, readErr = unix.Read(int(fd), b)
			if !errors.Is(readErr, unix.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(readErr, unix.EAGAIN):
		return 0, ErrWouldBlock
	case readErr != nil:
		return 0, fmt.Errorf("read %s: %w", p.Name(), readErr)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
