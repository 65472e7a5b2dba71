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

// Create puts the content at a name where nothing is, not even a dangling link;
// else it fails with `already_exists`. It fails with `not_supported` where the
// file system has no such step. An error that is the context's cause means that
// nothing was done.
func (s *Stage) Create(ctx context.Context, dir *posix.Dir, name string) (Receipt, error) {
	if err := s.Seal(); err != nil {
		return Receipt{}, err
	}
	done, err := s.p.turns.take(ctx, dir)
	if err != nil {
		return Receipt{}, err
	}
	defer done()
	r, err := s.create(dir, name)
	if errors.Is(err, unix.EEXIST) {
		return r, posix.Refuse(wire.CodeAlreadyExists, "create", dir.Join(name), "there is already something at this path")
	}
	if posix.Missing(err) {
		return r, posix.Refuse(wire.CodeNotSupported, "create", dir.Join(name), "this file system cannot create a file only if it is absent (%w)", err)
	}
	return r, posix.Wrap("create", dir.Join(name), err)
}

// create is the step itself; EEXIST says that something is there.
func (s *Stage) create(dir *posix.Dir, name string) (Receipt, error) {
	if s.private {
		if err := s.beNew(dir); err != nil {
			return Receipt{}, err
		}
	}
	if err := s.createStep(dir, name); err != nil {
		return Receipt{}, err
	}
	s.dropName()
	posix.SyncDir(s.p.calls, dir)
	created := true
	return s.receipt(dir, name, &created), nil
}

// beNew gives content that was staged for a file which is gone by now the mode and
// the access list that a new file gets in the folder.
func (s *Stage) beNew(dir *posix.Dir) error {
	like, err := s.p.Stage(dir, s.target, false)
	if err != nil {
		return err
	}
	defer like.Discard()
	if err := s.adopt(like.own); err != nil {
		return err
	}
	s.private = false
	return nil
}

func (s *Stage) createStep(dir *posix.Dir, name string) error {
	if fault.On("files: an exclusive create replaces") {
		if err := s.haveName(dir, name, ""); err != nil {
			return err
		}
		return s.p.calls.Rename(s.named.FD, s.name, dir.FD, name)
	}
	if s.name == "" {
		return s.p.calls.Link(s.own.FD, dir.FD, name)
	}
	err := s.p.calls.RenameNew(s.named.FD, s.name, dir.FD, name)
	if !posix.Missing(err) {
		return err
	}
	// A hard link replaces nothing either; the temporary name is then one too many.
	if err := posix.HardLink(s.named.FD, s.name, dir.FD, name); err != nil {
		if errors.Is(err, unix.EPERM) {
			return unix.EOPNOTSUPP // how a file system without hard links says so
		}
		return err
	}
	if err := posix.Unlink(s.named.FD, s.name); err != nil && !os.IsNotExist(err) {
		s.forget = nil // the step is done; what is too many stays in the journal for the next start
	}
	return nil
}

// haveName gives a stage its temporary name for a step on a target, if it has none
// yet, and makes sure that the journal knows what the step is about to do.
func (s *Stage) haveName(dir *posix.Dir, name, expected string) error {
	s.target = dir.Join(name)
	if s.name != "" {
		return s.moveName(dir, expected)
	}
	if err := s.takeName(dir, expected); err != nil {
		return err
	}
	if err := s.p.calls.Link(s.own.FD, dir.FD, s.name); err != nil {
		s.dropName()
		if errors.Is(err, unix.EEXIST) {
			err = errors.New("a temporary name was taken already")
		}
		return err
	}
	return nil
}

// moveName makes sure that a temporary name is in the target's folder.
func (s *Stage) moveName(dir *posix.Dir, expected string) error {
	here, err := posix.StatFd(s.named.FD)
	if err != nil {
		return err
	}
	there, err := posix.StatFd(dir.FD)
	if err != nil {
		return err
	}
	if here.Same(there) {
		return s.record(s.named, s.name, expected)
	}
	// Both names are in the journal until one of them is gone.
	was := Stage{p: s.p, name: s.name, named: s.named, forget: s.forget}
	s.name, s.named, s.forget = "", nil, nil
	err = s.takeName(dir, expected)
	if err == nil {
		err = s.p.calls.Rename(was.named.FD, was.name, dir.FD, s.name)
	}
	if err != nil {
		s.dropName()
		s.name, s.named, s.forget = was.name, was.named, was.forget
		return err
	}
	was.dropName()
	return nil
}
