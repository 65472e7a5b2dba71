package activity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/sema-agent/device-executor/internal/regular"
)

// name returns the name of the i-th file, the one that grows being the 0th.
func name(i int) string {
	if i == 0 {
		return "activity.jsonl"
	}
	return "activity." + strconv.Itoa(i) + ".jsonl"
}

// journal is the file that grows, and the rotation of those before it. It has one
// user, the only writer in the folder.
type journal struct {
	dir  string
	max  int64
	file *os.File // nil: not open
	size int64
	torn bool // it does not end with a line's end
}

// append writes whole lines. After an error some of them may be there, the last
// one torn; the next append then starts a line of its own.
func (j *journal) append(lines []byte) error {
	if err := j.ready(); err != nil {
		return err
	}
	if j.size > 0 && j.size+int64(len(lines)) > j.max {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	if j.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := j.file.Write(lines)
	j.size += int64(n)
	if n > 0 {
		j.torn = lines[n-1] != '\n'
	}
	return err
}

// ready has the file open, also after somebody removed it.
func (j *journal) ready() error {
	path := filepath.Join(j.dir, name(0))
	if j.file != nil {
		mine, err := j.file.Stat()
		if there, statErr := os.Lstat(path); err == nil && statErr == nil && os.SameFile(mine, there) {
			return nil
		}
		j.close()
	}
	// A link planted in its place is not written to.
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := j.adopt(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// adopt takes up a file as it was left.
func (j *journal) adopt(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	j.torn = false
	if size := info.Size(); size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		j.torn = last[0] != '\n'
	}
	j.file, j.size = f, info.Size()
	return nil
}

// rotate puts the file aside under the next number; the oldest goes.
func (j *journal) rotate() error {
	j.close()
	for i := files - 1; i > 0; i-- {
		err := os.Rename(filepath.Join(j.dir, name(i-1)), filepath.Join(j.dir, name(i)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return j.ready()
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
}
