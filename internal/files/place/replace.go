package place

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// ErrLink reports a symbolic link at the name: the content belongs where it
// leads, which is for the caller to find out.
var ErrLink = errors.New("a symbolic link came to be at the path")

// Replace puts the content at a name, in place of the regular file that is there
// or where nothing is. An error that is the context's cause means that nothing
// was done.
func (s *Stage) Replace(ctx context.Context, dir *posix.Dir, name string) (Receipt, error) {
	done, err := s.p.turns.take(ctx, dir)
	if err != nil {
		return Receipt{}, err
	}
	defer done()
	for {
		r, err := s.replaceOnce(dir, name)
		if errors.Is(err, unix.EEXIST) {
			// It came to be between the look and the step.
			if cause := context.Cause(ctx); cause != nil {
				return Receipt{}, cause
			}
			continue
		}
		if errors.Is(err, ErrLink) {
			return r, err
		}
		return r, posix.Wrap("write", dir.Join(name), err)
	}
}

func (s *Stage) replaceOnce(dir *posix.Dir, name string) (Receipt, error) {
	old, err := s.p.look(dir, name)
	if err != nil {
		return Receipt{}, err
	}
	if old == nil {
		if err := s.Seal(); err != nil {
			return Receipt{}, err
		}
		r, err := s.create(dir, name)
		if !posix.Missing(err) {
			return r, err
		}
		return s.rename(dir, name) // who made the file is then not known
	}
	defer old.Close()
	if err := replaceable(old, dir, name); err != nil {
		return Receipt{}, err
	}
	if err := s.adopt(old); err != nil {
		return Receipt{}, err
	}
	if err := s.Seal(); err != nil {
		return Receipt{}, err
	}
	r, err := s.rename(dir, name)
	if err == nil {
		created := fault.On("files: every file is said to be new")
		r.Created = &created
	}
	return r, err
}

// rename is the step: it refuses folders and leaves no old object behind.
func (s *Stage) rename(dir *posix.Dir, name string) (Receipt, error) {
	if err := s.haveName(dir, name, ""); err != nil {
		return Receipt{}, err
	}
	if fault.On("files: the old file goes before the new one comes") {
		_ = posix.Unlink(dir.FD, name)
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.p.calls.Rename(s.named.FD, s.name, dir.FD, name); err != nil {
		if errors.Is(err, unix.EBUSY) {
			err = posix.Refuse(posix.CodeOf(err), "write", dir.Join(name), "something is mounted at this path, so it cannot be replaced (%w)", err)
		}
		return Receipt{}, err
	}
	s.dropName()
	posix.SyncDir(s.p.calls, dir)
	return s.receipt(dir, name, nil), nil
}

// replaceable refuses what is no regular file, or one that is not ours to write.
func replaceable(old *posix.Object, dir *posix.Dir, name string) error {
	switch old.Kind() {
	case wire.FileFile:
		return posix.Wrap("write", dir.Join(name), old.Writable(dir, name))
	case wire.FileDir:
		return posix.Refuse(wire.CodeIsDirectory, "write", dir.Join(name), "a folder is at this path")
	case wire.FileSymlink:
		return ErrLink
	}
	return posix.Refuse(wire.CodeInvalid, "write", dir.Join(name), "%s is at this path, not a regular file", old.What())
}
