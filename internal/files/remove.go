package files

import (
	"context"
	"errors"
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
		err = posix.Unlink(dir.FD, name)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return cause
	}
	return posix.Wrap(op, p, err)
}

const (
	// treeBatch is how many names of a folder are read before they are removed.
	treeBatch = 1024
	// treeOpen is how many of the folders that lead down to where a removal is are
	// held open; the others are opened again on the way up.
	treeOpen = 32
)

// removal is a recursive removal on its way: the folders from the one that holds
// the tree down to where it is.
type removal struct {
	l    *Layer
	ctx  context.Context
	path string // of the tree, as asked
	down []openFolder
}

type openFolder struct {
	fd   int // -1: not held open now
	is   posix.Stat
	name string
}

// removeTree removes a name, and if it is a folder what is in it. What vanishes
// meanwhile is fine. An error is said of its path.
func (l *Layer) removeTree(ctx context.Context, parent int, name, path string) error {
	r := &removal{l: l, ctx: ctx, path: path, down: []openFolder{{fd: parent}}}
	defer func() {
		for _, f := range r.down[1:] {
			if f.fd >= 0 {
				unix.Close(f.fd)
			}
		}
	}()
	return r.remove(name)
}

// remove removes a name of the folder where the removal is.
func (r *removal) remove(name string) error {
	for {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		err := unlinkAny(r.here().fd, name)
		if err == nil || os.IsNotExist(err) {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return r.failed(name, err)
		}
		entered, err := r.enter(name)
		if err != nil {
			return r.failed(name, err)
		}
		if !entered {
			continue // it has become something else: look again
		}
		if err := r.empty(); err != nil {
			return err
		}
		if err := r.leave(); err != nil {
			return r.failed(name, err)
		}
	}
}

func (r *removal) here() *openFolder { return &r.down[len(r.down)-1] }

// failed says an error of a name of the folder where the removal is.
func (r *removal) failed(name string, err error) error {
	if len(r.down) == 1 {
		return posix.Wrap("remove", r.path, err)
	}
	path := strings.TrimRight(r.path, "/")
	for _, f := range r.down[2:] {
		path += "/" + f.name
	}
	if name != "" {
		path += "/" + name
	}
	return posix.Wrap("remove", path, err)
}

// enter goes down into a folder, and reports false for what is none.
func (r *removal) enter(name string) (bool, error) {
	fd, err := r.l.calls.Open(r.here().fd, name, posix.Folder|unix.O_NOFOLLOW, 0)
	if os.IsNotExist(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, err := posix.StatFd(fd)
	if err != nil {
		unix.Close(fd)
		return false, err
	}
	r.down = append(r.down, openFolder{fd: fd, is: is, name: name})
	if far := len(r.down) - 1 - treeOpen; far > 0 { // the first one is the caller's
		unix.Close(r.down[far].fd)
		r.down[far].fd = -1
	}
	return true, nil
}

// errMoved: going back up does not lead to where the removal came from.
var errMoved = errors.New("it was moved while it was being removed")

// leave goes up again.
func (r *removal) leave() error {
	left := *r.here()
	above := &r.down[len(r.down)-2]
	if above.fd < 0 {
		fd, err := r.l.calls.Open(left.fd, "..", posix.Folder|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		above.fd = fd
		is, err := posix.StatFd(fd)
		if err != nil {
			return err
		}
		if !is.Same(above.is) && !copiedUp(fd, is, above.is) {
			return errMoved
		}
	}
	r.down = r.down[:len(r.down)-1]
	unix.Close(left.fd)
	return nil
}

// copiedUp reports whether a folder of an overlay is the one that was there before
// something in it was changed.
func copiedUp(fd int, is, was posix.Stat) bool {
	return is.Dev == was.Dev && is.Ino == was.Ino && posix.InOverlay(fd)
}

// empty removes what is in the folder where the removal is.
func (r *removal) empty() error {
	for {
		var names []string
		err := posix.Names(r.l.calls, r.here().fd, func(n string) bool {
			names = append(names, n)
			return len(names) < treeBatch
		})
		if err != nil {
			return r.failed("", err)
		}
		if len(names) == 0 {
			return nil
		}
		for _, n := range names {
			if err := r.remove(n); err != nil {
				return err
			}
		}
	}
}

// unlinkAny removes a file, a link or an empty folder.
func unlinkAny(parent int, name string) error {
	err := posix.Unlink(parent, name)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	as := posix.Rmdir(parent, name)
	if errors.Is(as, unix.ENOTDIR) {
		return err // a file that may not be removed
	}
	return as
}
