package files

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/place"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Receipt says which object was written.
type Receipt = place.Receipt

// Expect is what a guarded write demands (§3.5).
type Expect = wire.Expect

// Draft is content on its way to a path. It belongs to one goroutine. It must be
// discarded at the end, also after a success.
//
// Until Replace, Create, Guarded or Append is called nothing can be seen of it (a
// file system without nameless files shows a temporary name). An error of one of
// those means that the target is what it was, unless its code is
// `outcome_unknown`.
type Draft struct {
	l     *Layer
	path  string // as asked
	clean string
	home  *posix.Dir
	stage *place.Stage
}

// Draft opens a draft for the object that a path leads to. It fails where there is
// no folder to write in.
func (l *Layer) Draft(p string) (*Draft, error) {
	const op = "write"
	clean, err := checkPath(op, p)
	if err != nil {
		return nil, err
	}
	s, err := l.find(op, clean, false)
	if err != nil {
		return nil, err
	}
	return l.draft(p, clean, s)
}

// DraftNew opens a draft for Create. It fails with `already_exists` at once if there
// is anything at the path, a dangling or looping link included, also where this
// process could not write.
func (l *Layer) DraftNew(p string) (*Draft, error) {
	const op = "create"
	clean, err := checkPath(op, p)
	if err != nil {
		return nil, err
	}
	if clean == "/" {
		return nil, posix.Wrap(op, p, unix.EEXIST)
	}
	s, err := l.spotAt(op, p, clean)
	if err != nil {
		return nil, err
	}
	if s.old != nil {
		s.close()
		return nil, posix.Refuse(wire.CodeAlreadyExists, op, p, "there is already something at this path")
	}
	return l.draft(p, clean, s)
}

// DraftGuarded opens a draft for Guarded. What does not hold already is found here,
// also where this process could not write.
func (l *Layer) DraftGuarded(p string, want Expect) (*Draft, error) {
	clean, err := checkPath("guarded write", p)
	if err != nil {
		return nil, err
	}
	dir, name, err := l.expected(p, clean, want)
	if err != nil {
		return nil, err
	}
	s := &spot{dir: dir, name: name}
	s.old, err = posix.Hold(l.calls, dir.FD, name)
	if os.IsNotExist(err) {
		s.old, err = nil, nil
	}
	if err == nil {
		err = l.placer.Check(dir, name, s.old, objectOf(want))
	}
	if err != nil {
		s.close()
		return nil, posix.Wrap("guarded write", p, err)
	}
	return l.draft(p, clean, s)
}

func (l *Layer) draft(p, clean string, s *spot) (*Draft, error) {
	stage, err := l.placer.Stage(s.dir, s.real(), s.old != nil)
	if err != nil {
		// What is no file could not be written in another folder either.
		if s.old != nil && s.old.Kind() != wire.FileFile {
			err = l.placer.Check(s.dir, s.name, s.old, place.Expect{})
		}
		s.close()
		return nil, err
	}
	if s.old != nil {
		s.old.Close()
	}
	return &Draft{l: l, path: p, clean: clean, home: s.dir, stage: stage}, nil
}

// Write adds content.
func (d *Draft) Write(b []byte) (int, error) { return d.stage.Write(b) }

// Flush makes the content last, before the step. Nothing can be written after it,
// and what was flushed cannot be appended.
func (d *Draft) Flush() error { return d.stage.Seal() }

// Discard removes the draft. What has been placed stays.
func (d *Draft) Discard() {
	d.stage.Discard()
	d.home.Close()
}

// Replace puts the content at the path, in place of the file there or as a new
// one; missing folders are made.
func (d *Draft) Replace(ctx context.Context) (Receipt, error) {
	return d.through(ctx, false, func(dir *posix.Dir, name string) (Receipt, error) {
		if err := tellable("write", d.path, dir.Join(name)); err != nil {
			return Receipt{}, err
		}
		return d.stage.Replace(ctx, dir, name)
	})
}

// Create puts the content at the path if nothing is there, not even a dangling
// link; missing folders are made.
func (d *Draft) Create(ctx context.Context) (Receipt, error) {
	return d.through(ctx, true, func(dir *posix.Dir, name string) (Receipt, error) {
		if err := tellable("create", d.path, dir.Join(name)); err != nil {
			return Receipt{}, err
		}
		return d.stage.Create(ctx, dir, name)
	})
}

// Append puts the content at the end of the file at the path; a missing file, and
// missing folders, are made.
func (d *Draft) Append(ctx context.Context) error {
	_, err := d.through(ctx, false, func(dir *posix.Dir, name string) (Receipt, error) {
		return Receipt{}, d.stage.Append(ctx, dir, name)
	})
	return err
}

// through finds the place, makes its folders, and takes the step there. Folders
// made for a step that failed are removed again.
func (d *Draft) through(ctx context.Context, keep bool, step func(*posix.Dir, string) (Receipt, error)) (Receipt, error) {
	var gone error = unix.ELOOP
	for range maxLinks {
		s, err := d.l.find("write", d.clean, keep)
		if err != nil {
			return Receipt{}, err
		}
		made, dir, err := d.l.makeFolders(s)
		var r Receipt
		if err == nil {
			r, err = step(dir, s.name)
		}
		if err != nil {
			made.undo()
		} else {
			made.sync()
		}
		made.close()
		s.close()
		if errors.Is(err, place.ErrLink) {
			continue // go where it leads
		}
		if posix.CodeOf(err) == wire.CodeNotFound && ctx.Err() == nil {
			gone = err
			continue // a folder on the way was removed meanwhile: make it again
		}
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
			return r, cause
		}
		return r, posix.Wrap("write", d.path, err)
	}
	return Receipt{}, d.l.notOpened("write", d.clean, gone)
}

// Guarded puts the content at the path if what is there is what is expected,
// checked and done in one step. No folder is made.
func (d *Draft) Guarded(ctx context.Context, want Expect) (Receipt, error) {
	dir, name, err := d.l.expected(d.path, d.clean, want)
	if err != nil {
		return Receipt{}, err
	}
	defer dir.Close()
	return d.stage.Guarded(ctx, dir, name, objectOf(want))
}

// objectOf is what must be at the path itself.
func objectOf(want Expect) place.Expect {
	if fault.On("files: the expected object is not compared") {
		want.FileID = ""
	}
	return place.Expect{FileID: want.FileID, Absent: want.Exclusive}
}

// expected holds a path to what a guarded write demands of it, the object there
// aside, and opens the folder that is then the one meant.
func (l *Layer) expected(p, clean string, want Expect) (dir *posix.Dir, name string, err error) {
	const op = "guarded write"
	failed := func(format string, args ...any) (*posix.Dir, string, error) {
		return nil, "", posix.Refuse(wire.CodePreconditionFailed, op, p, format, args...)
	}
	canonical, err := checkPath(op, want.CanonicalPath)
	if err != nil || canonical != want.CanonicalPath || canonical == "/" {
		return failed("expected a canonical path, got %q", want.CanonicalPath)
	}
	if want.NoFollow && !fault.On("files: noFollow is not heeded") {
		s, err := l.find(op, clean, true)
		switch {
		case unresolved(err):
			return failed("the path leads nowhere (%v); expected %q", err, canonical)
		case err != nil:
			return nil, "", err
		}
		link := s.old != nil && s.old.Kind() == wire.FileSymlink
		s.close()
		if link {
			return failed("its last component is a symbolic link; expected none")
		}
	}
	s, err := l.find(op, clean, false)
	switch {
	case unresolved(err):
		return failed("the path leads nowhere (%v); expected %q", err, canonical)
	case err != nil:
		return nil, "", err
	}
	real, missing := s.real(), len(s.missing) > 0
	s.close()
	switch {
	case real != canonical:
		return failed("the path leads to %q; expected %q", real, canonical)
	case missing:
		return failed("its folder does not exist")
	}
	parent, name := split(canonical)
	dir, err = posix.OpenDirNoLinks(l.calls, parent)
	if os.IsNotExist(err) || unresolved(err) {
		return failed("the folder %q is not canonical any more (%v)", parent, err)
	}
	if err != nil {
		return nil, "", posix.Wrap(op, p, err)
	}
	if err := l.admit(op, p, dir.Join(name)); err != nil {
		dir.Close()
		return nil, "", err
	}
	return dir, name, nil
}

// unresolved reports whether a path has no end: a link that loops, or a folder
// that is none.
func unresolved(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) }
