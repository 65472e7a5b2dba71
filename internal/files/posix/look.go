package posix

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// lookFirst holds objects where a handle takes the right to read and opening one is
// not harmless: a FIFO gets a reader, a device its driver's attention, a socket is
// refused. So it is looked first, and only files, folders and links are opened, each
// with its flags. What is none of them, or may not be read, can be looked at but not
// held.
type lookFirst struct{ file, folder, link int }

// lookTries bounds the looks at a name where one kind of object takes another's place
// again and again.
const lookTries = 100

func (l lookFirst) hold(c Calls, dir int, name string, follow bool) (*Object, error) {
	for try := 1; ; try++ {
		o, err := l.holdOnce(c, dir, name, follow)
		if !errors.Is(err, errOther) {
			return o, err
		}
		if try == lookTries {
			return nil, unix.EBUSY
		}
	}
}

// errOther says that another object was opened than was looked at.
var errOther = errors.New("replaced meanwhile")

func (l lookFirst) holdOnce(c Calls, dir int, name string, follow bool) (*Object, error) {
	at, rest := unix.AT_SYMLINK_NOFOLLOW, unix.O_NOFOLLOW
	if follow {
		at, rest = 0, 0
	}
	st, err := statAt(dir, name, at)
	if err != nil {
		return nil, err
	}
	var flags int
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		flags = l.file | rest
	case unix.S_IFDIR:
		flags = l.folder | rest
	case unix.S_IFLNK:
		flags = l.link
	default:
		return looked(c, dir, name, follow, st)
	}
	fd, err := c.Open(dir, name, flags, 0)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return looked(c, dir, name, follow, st)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return nil, errOther // the next look says what there is
	case err != nil:
		return nil, err
	}
	o, err := asObject(fd)
	if err != nil {
		return nil, err
	}
	if o.Mode&unix.S_IFMT != st.Mode&unix.S_IFMT {
		o.Close()
		return nil, errOther
	}
	// The kernel knows a file with several names by any of them.
	if o.Links > 1 && o.Mode&unix.S_IFMT == unix.S_IFREG {
		if o.path, err = pathTo(c, dir, name, follow); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// looked makes an Object of a look alone.
func looked(c Calls, dir int, name string, follow bool, st Stat) (*Object, error) {
	p, err := pathTo(c, dir, name, follow)
	if err != nil {
		return nil, err
	}
	return &Object{FD: -1, Stat: st, path: p}, nil
}

// mostLinks is how many links in a row are followed.
const mostLinks = 40

// pathTo is the real path of a name, or of what a link leads to, found by way of the
// folder it is in.
func pathTo(c Calls, dir int, name string, follow bool) (string, error) {
	for range mostLinks {
		name = strings.TrimRight(name, "/")
		parent, last := ".", name
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			parent, last = name[:i+1], name[i+1:]
		}
		if last == "" || last == "." || last == ".." {
			d, err := OpenDir(c, dir, name+"/")
			if err != nil {
				return "", err
			}
			d.Close()
			return d.Path, nil
		}
		d, err := OpenDir(c, dir, parent)
		if err != nil {
			return "", err
		}
		target, err := Readlink(d.FD, last)
		d.Close()
		if !follow || errors.Is(err, unix.EINVAL) {
			return d.Join(last), nil
		}
		if err != nil {
			return "", err
		}
		if dir, name = CWD, target; !strings.HasPrefix(target, "/") {
			name = d.Join(target)
		}
	}
	return "", unix.ELOOP
}
