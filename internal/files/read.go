package files

import (
	"bytes"
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// File is a regular file open for reading, from its start to the end as met.
type File struct {
	l    *Layer
	fd   int
	path string
}

// Open opens the regular file that a path leads to. Nothing else is opened, not
// even for a moment: a FIFO has no reader for it, a device is not touched.
func (l *Layer) Open(p string) (*File, error) {
	const op = "read"
	clean, err := checkPath(op, p)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		fd, replaced, err := l.open(op, p, clean)
		if err == nil {
			return &File{l: l, fd: fd, path: p}, nil
		}
		if !replaced || try >= realPathTries {
			return nil, posix.Wrap(op, p, err)
		}
	}
}

// open opens the regular file at a path now. Where a file can be opened by its path
// only, one that others keep replacing may be gone between the look and the opening.
func (l *Layer) open(op, p, clean string) (fd int, replaced bool, err error) {
	o, err := l.object(op, clean)
	if err != nil {
		return -1, false, err
	}
	defer o.Close()
	switch o.Kind() {
	case wire.FileFile:
	case wire.FileDir:
		return -1, false, posix.Refuse(wire.CodeIsDirectory, op, p, "it is a folder")
	default:
		return -1, false, posix.Refuse(wire.CodeInvalid, op, p, "it is %s, not a regular file", o.What())
	}
	fd, err = o.Open(l.calls, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err == unix.EAGAIN {
		// Somebody has a lease on it (a file server does) and is being asked to let go.
		fd, err = o.Open(l.calls, unix.O_RDONLY|unix.O_NOCTTY)
	}
	return fd, os.IsNotExist(err), err
}

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := f.l.calls.Read(f.fd, b)
	if err != nil {
		return 0, posix.Wrap("read", f.path, err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close closes the file.
func (f *File) Close() error { return unix.Close(f.fd) }

// Everything hands all bytes to put, in pieces of at most wire.MaxChunkBytes, which
// put must not keep. It stops at the first error of put or of the file, or when
// the context ends, with its cause.
func (f *File) Everything(ctx context.Context, put func([]byte) error) error {
	buf := make([]byte, wire.MaxChunkBytes)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := f.Read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := put(buf[:n]); err != nil {
			return err
		}
	}
}

// Lines hands on the bytes of at most limit lines after the first skip lines
// (limit < 0: all of them) and reads not much further. A line ends behind its LF,
// the last one also at the end of the file.
func (f *File) Lines(ctx context.Context, skip, limit int64, put func([]byte) error) error {
	if limit == 0 {
		return nil
	}
	if limit > 0 && fault.On("files: a line above the limit") {
		limit++
	}
	err := f.Everything(ctx, func(b []byte) error {
		for ; skip > 0 && len(b) > 0; skip-- {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				return nil
			}
			b = b[i+1:]
		}
		end := 0
		for ; limit != 0 && end < len(b); limit-- {
			i := bytes.IndexByte(b[end:], '\n')
			if i < 0 || limit < 0 {
				end = len(b)
				break
			}
			end += i + 1
		}
		if end > 0 {
			if err := put(b[:end]); err != nil {
				return err
			}
		}
		if limit == 0 {
			return io.EOF
		}
		return nil
	})
	if err == io.EOF {
		return nil
	}
	return err
}
