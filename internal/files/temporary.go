package files

import (
	"encoding/hex"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// TempDir makes a folder for its owner alone in the temporary folder and returns
// its real path.
func (l *Layer) TempDir(prefix string) (string, error) {
	return l.temporary("make a temporary folder", prefix, "", func(dir int, name string) error {
		return posix.Mkdir(dir, name, 0o700)
	})
}

// TempFile makes an empty file for its owner alone in the temporary folder and
// returns its real path.
func (l *Layer) TempFile(prefix, suffix string) (string, error) {
	return l.temporary("make a temporary file", prefix, suffix, func(dir int, name string) error {
		fd, err := l.calls.Open(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		return posix.Close(fd)
	})
}

func (l *Layer) temporary(op, prefix, suffix string, create func(dir int, name string) error) (string, error) {
	for _, part := range []string{prefix, suffix} {
		for i := range len(part) {
			if part[i] == '/' || part[i] == 0 {
				return "", posix.Refuse(wire.CodeInvalid, op, part, "a prefix or suffix holds no separator and no NUL")
			}
		}
	}
	dir, err := posix.OpenDir(l.calls, posix.CWD, l.temp)
	if err != nil {
		return "", posix.Wrap(op, l.temp, err)
	}
	defer dir.Close()
	if err := l.admit(op, l.temp, dir.Path); err != nil {
		return "", err
	}
	if err := tellable(op, l.temp, dir.Path); err != nil {
		return "", err
	}
	for {
		middle, err := l.randomName()
		if err != nil {
			return "", posix.Wrap(op, dir.Path, err)
		}
		name := prefix + middle + suffix
		if err = create(dir.FD, name); os.IsExist(err) {
			continue
		}
		return dir.Join(name), posix.Wrap(op, dir.Join(name), err)
	}
}

// randomName is the middle of a temporary name.
func (l *Layer) randomName() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(l.random, b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}
