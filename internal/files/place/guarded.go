package place

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Expect is what must be at the name for a guarded step.
type Expect struct {
	FileID string // this object; "": any regular file, or nothing
	Absent bool   // nothing
}

// Guarded puts the content at a name if what is there is what is expected, in one
// step. The folder must have been opened through no link. Else it fails with
// `precondition_failed`, or `already_exists` for Absent; with `not_supported`
// where the file system cannot exchange. An error that is the context's cause
// means that nothing was done.
func (s *Stage) Guarded(ctx context.Context, dir *posix.Dir, name string, want Expect) (Receipt, error) {
	done, err := s.exclusively(ctx, dir)
	if err != nil {
		return Receipt{}, err
	}
	defer done()
	for {
		r, err := s.guardedOnce(dir, name, want)
		if !errors.Is(err, errAgain) {
			return r, posix.Wrap("write", dir.Join(name), err)
		}
		if cause := context.Cause(ctx); cause != nil {
			return Receipt{}, cause
		}
	}
}

// errAgain says that the name changed between the look and the step, and that the
// step was taken back or did not happen.
var errAgain = errors.New("the path changed meanwhile")

// exclusively takes the lock of a folder and then the turn, so that a step that
// needs no lock does not wait for a lock that somebody else holds.
func (s *Stage) exclusively(ctx context.Context, dir *posix.Dir) (release func(), err error) {
	first, err := s.p.lockers.take(ctx, dir)
	if err != nil {
		return nil, err
	}
	unlock, err := lockFolder(ctx, s.p.calls, dir)
	if err != nil {
		first()
		return nil, err
	}
	done, err := s.p.turns.take(ctx, dir)
	if err != nil {
		unlock()
		first()
		return nil, err
	}
	return func() { done(); unlock(); first() }, nil
}

func (s *Stage) guardedOnce(dir *posix.Dir, name string, want Expect) (Receipt, error) {
	failed := func(format string, args ...any) (Receipt, error) {
		return Receipt{}, posix.Refuse(wire.CodePreconditionFailed, "guarded write", dir.Join(name), format, args...)
	}
	// A plain mismatch is found by looking, and touches nothing.
	old, err := s.p.look(dir, name)
	if err != nil {
		return Receipt{}, err
	}
	if old != nil {
		defer old.Close()
	}
	if err := s.p.Check(dir, name, old, want); err != nil {
		return Receipt{}, err
	}
	if old == nil {
		if err := s.Seal(); err != nil {
			return Receipt{}, err
		}
		r, err := s.create(dir, name)
		if errors.Is(err, unix.EEXIST) {
			return r, errAgain
		}
		return r, notSupported(err, dir.Join(name))
	}
	out, err := s.exchange(dir, name, old, old.FileID(s.p.calls), func(out *posix.Object) bool {
		if want.FileID == "" {
			return out.Kind() == wire.FileFile
		}
		now, err := old.Now() // an overlay may have copied it up for the step
		return err == nil && out.Same(now)
	})
	if err != nil {
		return Receipt{}, err
	}
	if !out {
		if want.FileID == "" {
			return failed("what is there became something else than a regular file meanwhile")
		}
		return failed("the object %s was replaced meanwhile", want.FileID)
	}
	created := false
	return s.receipt(dir, name, &created), nil
}

// Check says whether an object (nil: nothing) is what is expected at a name, and
// one that this package replaces. It is a look, and no promise.
func (p *Placer) Check(dir *posix.Dir, name string, old *posix.Object, want Expect) error {
	failed := func(code wire.ErrorCode, format string, args ...any) error {
		return posix.Refuse(code, "guarded write", dir.Join(name), format, args...)
	}
	switch {
	case old == nil && want.FileID != "":
		return failed(wire.CodePreconditionFailed, "nothing is there; expected the object %s", want.FileID)
	case old == nil:
		return nil
	case want.Absent:
		return failed(wire.CodeAlreadyExists, "there is already something at this path")
	case want.FileID != "" && !old.Is(p.calls, want.FileID):
		return failed(wire.CodePreconditionFailed, "%s is there, %s; expected the object %s", old.What(), old.FileID(p.calls), want.FileID)
	}
	err := replaceable(old, dir, name)
	if errors.Is(err, ErrLink) {
		return failed(wire.CodePreconditionFailed, "a symbolic link is there; expected a file at its canonical path")
	}
	return err
}

func notSupported(err error, path string) error {
	if !posix.Missing(err) {
		return err
	}
	return posix.Refuse(wire.CodeNotSupported, "guarded write", path, "this file system cannot check and write in one step (%w)", err)
}

// exchange swaps our object with what is at the name and asks judge about what
// came out. If judge says no, all is put back and the answer is false. The object
// looked at before must be held by the caller. After a crash in between, recovery
// removes what came out if its file id is finish, and else puts it back. errAgain:
// nothing is there any more.
func (s *Stage) exchange(dir *posix.Dir, name string, old *posix.Object, finish string, judge func(*posix.Object) bool) (bool, error) {
	if err := s.adopt(old); err != nil {
		return false, err
	}
	if err := s.Seal(); err != nil {
		return false, err
	}
	if err := s.haveName(dir, name, finish); err != nil {
		return false, notSupported(err, dir.Join(name))
	}
	switch err := s.p.calls.Exchange(s.named.FD, s.name, dir.FD, name); {
	case errors.Is(err, unix.ENOENT):
		return false, errAgain
	case errors.Is(err, unix.EBUSY):
		return false, posix.Refuse(posix.CodeOf(err), "write", dir.Join(name), "something is mounted at this path, so it cannot be replaced (%w)", err)
	case err != nil:
		return false, notSupported(err, dir.Join(name))
	}
	out, err := s.cameOut()
	if err != nil {
		return false, s.lost(dir, name, err)
	}
	defer out.Close()
	if judge(out) || fault.On("files: the object that came out is not judged") {
		if err := s.removeOut(out); err != nil {
			return false, s.lost(dir, name, err)
		}
		posix.SyncDir(s.p.calls, dir)
		return true, nil
	}
	return false, s.putBack(dir, name, out)
}

// cameOut holds the object at the temporary name. Where no descriptor can be had,
// a look has to do: an exchange must not be left half done for that.
func (s *Stage) cameOut() (*posix.Object, error) {
	o, err := posix.Hold(s.p.calls, s.named.FD, s.name)
	if err == nil {
		return o, nil
	}
	st, err := posix.StatAt(s.named.FD, s.name)
	return &posix.Object{FD: -1, Stat: st}, err
}

// putBack undoes an exchange. The object that came out is in place at the end, or a
// newer one that someone renamed in meanwhile. Each round puts in what
// came out of the one before; when what comes out is what was put in last, nobody
// interfered since, and what is at the temporary name is ours or was superseded.
func (s *Stage) putBack(dir *posix.Dir, name string, out *posix.Object) error {
	last := s.own.Stat
	for {
		err := s.p.calls.Exchange(s.named.FD, s.name, dir.FD, name)
		if errors.Is(err, unix.ENOENT) {
			// Someone removed our object there. Theirs is not for us to remove.
			err = s.p.calls.RenameNew(s.named.FD, s.name, dir.FD, name)
			if err == nil {
				s.dropName()
				return nil
			}
			if errors.Is(err, unix.EEXIST) {
				continue
			}
		}
		if err != nil {
			return s.lost(dir, name, err)
		}
		got, err := s.cameOut()
		if err != nil {
			return s.lost(dir, name, err)
		}
		// Held to the end, so that its number is not given to another.
		defer got.Close()
		if got.Same(last) {
			if got.Same(s.own.Stat) {
				return nil // it is ours again, with its temporary name
			}
			return s.removeOut(got)
		}
		last, out = out.Stat, got
	}
}

// removeOut removes the object at the temporary name, which is done with.
func (s *Stage) removeOut(out *posix.Object) error {
	remove := posix.Unlink
	if out.Kind() == wire.FileDir {
		remove = posix.Rmdir
	}
	if err := remove(s.named.FD, s.name); err != nil && !os.IsNotExist(err) {
		return err
	}
	s.dropName()
	return nil
}

// lost is for a system that fails in the middle of an exchange. The entry stays in
// the journal, so that the next start looks again.
func (s *Stage) lost(dir *posix.Dir, name string, err error) error {
	other := s.named.Join(s.name)
	s.forget = nil
	s.dropName()
	return posix.Refuse(wire.CodeOutcomeUnknown, "write", dir.Join(name),
		"the exchange could not be finished (%w); an object that belongs there may be at %q", err, other)
}
