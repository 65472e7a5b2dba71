// Package regular opens the files that this program keeps for itself, and nothing
// else that may stand in their place. A FIFO would hold up whoever opens it for as
// long as nobody writes to it, a device could go on for ever.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrOther is inside the error about an object that is no regular file.
var ErrOther = errors.New("it is not a regular file")

// Open opens the regular file at path, a link to one included, for reading. The
// error is a *fs.PathError, with ErrOther inside if something else is there.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is Open with the flags and the mode of os.OpenFile.
func OpenFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ENXIO) { // a socket, or a FIFO that nobody reads
		err = &fs.PathError{Op: "open", Path: path, Err: ErrOther}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrOther}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// Read returns what the regular file at path holds, if that is no more than most
// bytes. The error is a *fs.PathError as Open's.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it is larger than %d bytes", most)}
	}
	return data, err
}
