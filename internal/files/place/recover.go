package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Recover tidies up after a step that a crash cut short, and says in a few words
// what it did; "" is nothing. Without an error the entry has had its day.
//
// A temporary file of ours is removed. If another object is at the temporary name,
// an exchange was under way: the expected object was rightly replaced and is
// removed; any other goes back to its place. If something else is in its place by
// now, it is kept beside it under a name that can be seen. Whatever an entry says,
// nothing is touched but what has the form of a temporary name of this package.
func (p *Placer) Recover(ctx context.Context, e Entry) (did string, err error) {
	if !path.IsAbs(e.Target) || e.Target == "/" || !isTempName(e.Temp) {
		return "", nil // none of ours
	}
	dir, err := posix.OpenDirNoLinks(p.calls, path.Dir(e.Target))
	if gone(err) {
		return "", nil
	}
	if err != nil {
		return "", posix.Wrap("tidy up in", path.Dir(e.Target), err)
	}
	defer dir.Close()
	r := recovery{p: p, e: e, dir: dir, name: path.Base(e.Target)}
	did, err = r.run(ctx)
	return did, posix.Wrap("tidy up", dir.Join(e.Temp), err)
}

func gone(err error) bool {
	return os.IsNotExist(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

type recovery struct {
	p    *Placer
	e    Entry
	dir  *posix.Dir
	name string // of the target
}

func (r *recovery) run(ctx context.Context) (string, error) {
	unlock, err := lockFolder(ctx, r.p.calls, r.dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	for {
		left, err := r.p.look(r.dir, r.e.Temp)
		if err != nil || left == nil {
			return "", err
		}
		did, err := r.settle(left)
		left.Close()
		if !errors.Is(err, errAgain) {
			return did, err
		}
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
	}
}

// settle deals with the object at the temporary name.
func (r *recovery) settle(left *posix.Object) (string, error) {
	switch {
	case r.e.Ours == "" && left.Kind() == wire.FileFile, r.e.Ours != "" && left.Is(r.p.calls, r.e.Ours):
		return "removed a temporary file", r.remove()
	case r.e.Ours == "":
		return "", nil
	case r.e.Expected != "" && left.Is(r.p.calls, r.e.Expected):
		return "finished a write: removed the replaced file", r.remove()
	}
	there, err := r.p.look(r.dir, r.name)
	if err != nil {
		return "", err
	}
	if there == nil {
		err := r.p.calls.RenameNew(r.dir.FD, r.e.Temp, r.dir.FD, r.name)
		if errors.Is(err, unix.EEXIST) {
			return "", errAgain
		}
		return "put a file back in its place", err
	}
	defer there.Close()
	if there.Is(r.p.calls, r.e.Ours) {
		err := r.p.calls.Exchange(r.dir.FD, r.e.Temp, r.dir.FD, r.name)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return "", err
		}
		// What came out is ours, unless someone was quicker: look again.
		if err := r.removeOurs(); err != nil {
			return "", err
		}
		return "put a file back in its place", nil
	}
	return r.keepBeside()
}

func (r *recovery) remove() error { return posix.Unlink(r.dir.FD, r.e.Temp) }

func (r *recovery) removeOurs() error {
	out, err := r.p.look(r.dir, r.e.Temp)
	if err != nil {
		return err
	}
	if out == nil {
		return errAgain
	}
	defer out.Close()
	if !out.Is(r.p.calls, r.e.Ours) {
		return errAgain
	}
	return r.remove()
}

// longestName is how many bytes a name may have.
const longestName = 255

// keepBeside is for two objects of others that claim one place.
func (r *recovery) keepBeside() (string, error) {
	for n := 1; ; n++ {
		tail := fmt.Sprintf(".recovered-%d", n)
		beside := strings.ToValidUTF8(r.name[:min(len(r.name), longestName-len(tail))], "") + tail
		err := r.p.calls.RenameNew(r.dir.FD, r.e.Temp, r.dir.FD, beside)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		return fmt.Sprintf("kept a file as %q: another is in its place", r.dir.Join(beside)), err
	}
}
