package files

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Remove removes what is at a path; a link, never what it leads to. A folder needs
// recursive. A recursive removal goes from folder to folder by descriptor and
// never through a link, whatever is swapped meanwhile. It stops when the context
// ends, with its cause; part of the folder may then be gone.
func (l *Layer) Remove(ctx context.Context, p string, recursive bool) error {
	const op = "remove"
	clean, err := checkPath(op, p)
	if err != nil {
		return err
	}
	if clean == "/" {
		return posix.Refuse(wire.CodeInvalid, op, p, "the root of the file system is not removed")
	}
	dir, name, err := l.folderOf(op, clean)
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := posix.StatAt(dir.FD, name)
	switch {
	case err != nil:
		return posix.Wrap(op, p, err)
	case st.Kind() == wire.FileDir && !recursive && !fault.On("files: remove takes any folder"):
		return posix.Refuse(wire.CodeIsDirectory, op, p, "it is a folder; removing it takes recursive")
	case st.Kind() == wire.FileDir:
		err = l.removeTree(ctx, dir.FD, name, p)
	default:
		err = unix.Unlinkat(dir.FD, name, 0)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return cause
	}
	return posix.Wrap(op, p, err)
}

// treeBatch is how many names of a folder are read before they are removed.
const treeBatch = 1024

// removeTree removes a name, and if it is a folder what is in it. What vanishes
// meanwhile is fine. An error is said of its path.
func (l *Layer) removeTree(ctx context.Context, parent int, name, path string) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := unlinkAny(parent, name)
		if err == nil || os.IsNotExist(err) {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return posix.Wrap("remove", path, err)
		}
		if err := l.emptyFolder(ctx, parent, name, path); err != nil {
			return err
		}
	}
}

// unlinkAny removes a file, a link or an empty folder.
func unlinkAny(parent int, name string) error {
	err := unix.Unlinkat(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	as := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if errors.Is(as, unix.ENOTDIR) {
		return err // a file that may not be removed
	}
	return as
}

func (l *Layer) emptyFolder(ctx context.Context, parent int, name, path string) error {
	fd, err := l.calls.Open(parent, name, posix.HandleNoFollow|unix.O_DIRECTORY, 0)
	if os.IsNotExist(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // it has become something else: the caller looks again
	}
	if err != nil {
		return posix.Wrap("remove", path, err)
	}
	defer unix.Close(fd)
	for {
		var names []string
		err := posix.Names(l.calls, fd, func(n string) bool {
			names = append(names, n)
			return len(names) < treeBatch
		})
		if err != nil || len(names) == 0 {
			return posix.Wrap("remove", path, err)
		}
		for _, n := range names {
			if err := l.removeTree(ctx, fd, n, strings.TrimRight(path, "/")+"/"+n); err != nil {
				return err
			}
		}
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
