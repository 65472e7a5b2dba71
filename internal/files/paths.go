package files

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// checkPath holds a path to the protocol: absolute, and free of ".", ".." and NUL.
// The answer is without trailing slashes.
func checkPath(op, p string) (string, error) {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "", posix.Refuse(wire.CodeInvalid, op, p, "the path is not absolute")
	case strings.ContainsRune(p, 0):
		return "", posix.Refuse(wire.CodeInvalid, op, p, "the path holds a NUL byte")
	}
	if fault.On("files: a tilde is expanded") {
		p = strings.Replace(p, "/~", "/tmp", 1)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "." || part == ".." {
			return "", posix.Refuse(wire.CodeInvalid, op, p, "the path holds a %q component", part)
		}
	}
	if p = strings.TrimRight(p, "/"); p == "" {
		return "/", nil
	}
	return p, nil
}

// split cuts a path into its folder and its last name. The root is "." in itself.
func split(p string) (dir, name string) {
	if p == "/" {
		return "/", "."
	}
	i := strings.LastIndexByte(p, '/')
	dir, name = strings.TrimRight(p[:i], "/"), p[i+1:]
	if dir == "" {
		dir = "/"
	}
	return dir, name
}

// allowed reports whether a real path is in a root.
func (l *Layer) allowed(real string) bool {
	if l.roots == nil {
		return true
	}
	for _, root := range l.roots {
		if root == "/" || real == root || strings.HasPrefix(real, root+"/") {
			return true
		}
	}
	return false
}

func (l *Layer) admit(op, path, real string) error {
	if l.allowed(real) {
		return nil
	}
	return posix.Refuse(wire.CodePermissionDenied, op, path,
		"it is really at %q, outside the folders that the owner of this machine allows", real)
}

// folderOf opens the folder of a path, following links, and checks that the
// path's last name lies in a root.
func (l *Layer) folderOf(op, p string) (dir *posix.Dir, name string, err error) {
	parent, name := split(p)
	if dir, err = posix.OpenDir(l.calls, posix.CWD, parent); err != nil {
		return nil, "", l.notOpened(op, p, err)
	}
	if err := l.admit(op, p, dir.Join(name)); err != nil {
		dir.Close()
		return nil, "", err
	}
	return dir, name, nil
}

// object holds the object that a path leads to, links followed.
func (l *Layer) object(op, p string) (*posix.Object, error) {
	if l.roots == nil {
		// Not every object has a real path; a pipe behind a descriptor has none.
		o, err := posix.HoldFollowing(l.calls, posix.CWD, p)
		return o, posix.Wrap(op, p, err)
	}
	o, _, err := l.objectAndPath(op, p)
	return o, err
}

// objectAndPath is object with the real path.
func (l *Layer) objectAndPath(op, p string) (*posix.Object, string, error) {
	for try := 0; ; try++ {
		o, err := posix.HoldFollowing(l.calls, posix.CWD, p)
		if err != nil {
			return nil, "", l.notOpened(op, p, err)
		}
		real, err := o.RealPath()
		if err == nil {
			if err = l.admit(op, p, real); err == nil {
				return o, real, nil
			}
		}
		o.Close()
		// Replaced between the two calls: what is there now may have a path.
		if !os.IsNotExist(err) || try >= realPathTries {
			return nil, "", posix.Wrap(op, p, err)
		}
	}
}

// realPathTries is how often the real path of a file is asked for that others keep
// replacing.
const realPathTries = 100

// notOpened is the error for a path that could not be opened. With roots, a path
// outside them gets no other answer than that it is outside, except where this
// process could have opened none at all.
func (l *Layer) notOpened(op, p string, err error) error {
	exhausted := errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
	if l.roots == nil || exhausted || !l.outside(p) {
		return posix.Wrap(op, p, err)
	}
	return posix.Refuse(wire.CodePermissionDenied, op, p, "it is outside the folders that the owner of this machine allows")
}

// outside judges a path that cannot be opened by the deepest folder that can, and
// by where the name after it leads if that is a link.
func (l *Layer) outside(p string) bool {
	for range maxLinks {
		at, rest := p, ""
		var dir *posix.Dir
		for dir == nil {
			if at == "/" {
				return true
			}
			parent, name := split(at)
			rest = "/" + name + rest
			at = parent
			dir, _ = posix.OpenDir(l.calls, posix.CWD, at)
		}
		name, below, _ := strings.Cut(rest[1:], "/")
		inside := l.allowed(dir.Path)
		target, err := posix.Readlink(dir.FD, name)
		if err == nil && !strings.HasPrefix(target, "/") {
			target = dir.Join(target)
		}
		dir.Close()
		if err != nil || !inside {
			return !inside
		}
		if p = strings.TrimRight(target, "/"); below != "" {
			p += "/" + below
		}
		if p == "" {
			return true
		}
	}
	return false // a loop, and every hop of it is inside
}

// spot is where a write belongs.
type spot struct {
	dir     *posix.Dir // the deepest folder that is there
	missing []string   // folders between it and the name that are not
	name    string
	old     *posix.Object // what is at the name; nil: nothing
}

func (s *spot) close() {
	s.dir.Close()
	if s.old != nil {
		s.old.Close()
	}
}

// real is the path that the object has, or will have.
func (s *spot) real() string {
	if s.old != nil {
		if p, err := s.old.RealPath(); err == nil {
			return p
		}
	}
	p := s.dir.Path
	for _, m := range append(s.missing[:len(s.missing):len(s.missing)], s.name) {
		p = strings.TrimRight(p, "/") + "/" + m
	}
	return p
}

// maxLinks is how many links in a row are followed, as in the kernel.
const maxLinks = 40

// find finds where a write to a path belongs, through links to where they lead
// (unless keep), also if nothing is there yet.
func (l *Layer) find(op, p string, keep bool) (*spot, error) {
	at := p
	for range maxLinks {
		s, err := l.spotAt(op, p, at)
		if err != nil {
			return nil, err
		}
		if s.old == nil || s.old.Kind() != wire.FileSymlink || keep {
			return s, nil
		}
		target, err := l.hop(s)
		s.close()
		if err != nil && err != unix.EINVAL { // EINVAL: no link any more
			return nil, posix.Wrap(op, p, err)
		}
		if err == nil {
			at = target
		}
	}
	return nil, posix.Wrap(op, p, unix.ELOOP)
}

// hop is where the link of a spot leads. A link of /proc leads to an object, and
// its text is only what the object was called: it may be gone, or be there under
// that name in another mount namespace only.
func (l *Layer) hop(s *spot) (string, error) {
	target, err := posix.Readlink(s.dir.FD, s.name)
	switch {
	case err != nil:
		return "", err
	case !strings.HasPrefix(target, "/"):
		target = s.dir.Join(target)
	}
	if !posix.LinksToObjects(s.dir.FD) {
		return target, nil
	}
	o, err := posix.HoldFollowing(l.calls, s.dir.FD, s.name)
	if err != nil {
		return "", err
	}
	defer o.Close()
	real, err := o.RealPath()
	if os.IsNotExist(err) && o.Kind() == wire.FileOther {
		err = posix.Refuse(wire.CodeInvalid, "follow the link", s.dir.Join(s.name), "%s without a name is at its end, not a regular file", o.What())
	}
	return real, err
}

// spotAt looks at one path, following no last link.
func (l *Layer) spotAt(op, asked, at string) (*spot, error) {
	if len(at) > 1 {
		at = strings.TrimRight(at, "/")
	}
	parent, name := split(at)
	if name == "." || name == ".." || name == "" {
		return nil, posix.Refuse(wire.CodeIsDirectory, op, asked, "a folder is at this path")
	}
	s := &spot{name: name}
	for {
		dir, err := posix.OpenDir(l.calls, posix.CWD, parent)
		if err == nil {
			s.dir = dir
			break
		}
		if !os.IsNotExist(err) || parent == "/" {
			return nil, l.notOpened(op, asked, err)
		}
		var m string
		parent, m = split(parent)
		if m == "." || m == ".." { // in a link: the kernel makes no sense of it either
			return nil, l.notOpened(op, asked, err)
		}
		s.missing = append([]string{m}, s.missing...)
	}
	var err error
	if len(s.missing) == 0 {
		if s.old, err = posix.Hold(l.calls, s.dir.FD, name); os.IsNotExist(err) {
			s.old, err = nil, nil
		}
	}
	if err == nil {
		err = l.admit(op, asked, s.dir.Join(strings.Join(append(s.missing[:len(s.missing):len(s.missing)], name), "/")))
	}
	if err != nil {
		s.close()
		return nil, posix.Wrap(op, asked, err)
	}
	if s.old != nil {
		s.name = s.old.NameIn(s.dir, name)
	}
	return s, nil
}
