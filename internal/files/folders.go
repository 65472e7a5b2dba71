package files

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// made is a row of folders that were made for one operation, each in the one
// before it.
type made struct {
	calls posix.Calls
	first *posix.Dir   // borrowed
	names []string     // each in the folder before it; "" was there already
	dirs  []*posix.Dir // those of them that could be opened: all, or all but the last
}

// undo removes the folders again, as far as nobody has put anything in.
func (m *made) undo() {
	for i := len(m.names) - 1; i >= 0; i-- {
		parent := m.first
		if i > 0 {
			parent = m.dirs[i-1]
		}
		if m.names[i] == "" || posix.Rmdir(parent.FD, m.names[i]) != nil {
			return
		}
	}
}

// sync makes the new folders last.
func (m *made) sync() {
	if len(m.dirs) == 0 {
		return
	}
	posix.SyncDir(m.calls, m.first)
	for _, d := range m.dirs[:len(m.dirs)-1] {
		posix.SyncDir(m.calls, d)
	}
}

func (m *made) close() {
	for _, d := range m.dirs {
		d.Close()
	}
}

// makeFolders makes the missing folders of a spot, one in the other, and returns
// the last. Nothing that came to be there meanwhile is followed out of the roots.
func (l *Layer) makeFolders(s *spot) (*made, *posix.Dir, error) {
	m := &made{calls: l.calls, first: s.dir}
	dir := s.dir
	for _, name := range s.missing {
		err := posix.Mkdir(dir.FD, name, 0o777)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return m, nil, posix.Wrap("make the folder", dir.Join(name), err)
		}
		here := name
		if err != nil {
			here = ""
		}
		m.names = append(m.names, here)
		next, err := posix.OpenDir(l.calls, dir.FD, name)
		if err == nil {
			m.dirs = append(m.dirs, next)
			err = l.admit("make the folder", dir.Join(name), next.Path)
		}
		if err != nil {
			return m, nil, posix.Wrap("make the folder", dir.Join(name), err)
		}
		dir = next
	}
	return m, dir, nil
}

// MakeDir makes a folder. With recursive, missing folders above it are made too,
// and it is fine if it is there; without, it must be new.
func (l *Layer) MakeDir(p string, recursive bool) error {
	const op = "make the folder"
	clean, err := checkPath(op, p)
	if err != nil {
		return err
	}
	if !recursive {
		dir, name, err := l.folderOf(op, clean)
		if err != nil {
			return err
		}
		defer dir.Close()
		return posix.Wrap(op, p, posix.Mkdir(dir.FD, name, 0o777))
	}
	o, err := l.object(op, clean)
	if err == nil {
		defer o.Close()
		if o.Kind() != wire.FileDir {
			return posix.Refuse(wire.CodeNotDirectory, op, p, "%s is at this path", o.What())
		}
		return nil
	}
	if posix.CodeOf(err) != wire.CodeNotFound {
		return err
	}
	s, err := l.spotAt(op, p, clean)
	if err != nil {
		return err
	}
	defer s.close()
	s.missing = append(s.missing, s.name)
	m, _, err := l.makeFolders(s)
	if err != nil {
		m.undo()
		err = l.notOpened(op, clean, err)
	} else {
		m.sync()
	}
	m.close()
	return err
}
