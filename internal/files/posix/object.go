package posix

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/wire"
)

// Stat is what one look at an object says. Times are nanoseconds since 1970.
type Stat struct {
	Dev, Ino uint64
	Mode     uint32 // type and permission bits
	Size     int64  // bytes
	MtimeNs  int64
	CtimeNs  int64
	BirthNs  int64 // 0: the file system does not keep it
	UID, GID uint32
	Links    uint64 // names it has
	// AppendOnly: names (of a folder) or content (of a file) can be added, and nothing
	// taken away.
	AppendOnly bool
}

// Kind is the protocol's word for what the object is.
func (s Stat) Kind() wire.FileKind {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return wire.FileFile
	case unix.S_IFDIR:
		return wire.FileDir
	case unix.S_IFLNK:
		return wire.FileSymlink
	}
	return wire.FileOther
}

// What names the object's kind for people.
func (s Stat) What() string {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a regular file"
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// Perm is the permission bits with set-id and sticky.
func (s Stat) Perm() uint32 { return s.Mode & 07777 }

// Same reports whether both looks were at one object. It is exact while a handle
// of one of them is open, and very probably right otherwise. What an overlay copies
// up on a first change is born again: looks before and after that differ.
func (s Stat) Same(o Stat) bool { return s.Dev == o.Dev && s.Ino == o.Ino && s.BirthNs == o.BirthNs }

// Unchanged reports whether both looks found the same content, as far as sizes
// and times tell.
func (s Stat) Unchanged(o Stat) bool { return s.Size == o.Size && s.MtimeNs == o.MtimeNs }

// Dir is a handle of a folder, with the real path it had when it was opened.
type Dir struct {
	FD   int
	Path string
}

// Join is the real path of a name in the folder.
func (d *Dir) Join(name string) string {
	if name == "." {
		return d.Path
	}
	if d.Path == "/" {
		return "/" + name
	}
	return d.Path + "/" + name
}

// Close closes the handle.
func (d *Dir) Close() { unix.Close(d.FD) }

// Dup gives a second handle of the folder.
func (d *Dir) Dup() (*Dir, error) {
	fd, err := unix.FcntlInt(uintptr(d.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{FD: fd, Path: d.Path}, nil
}

// OpenDir opens a handle of the folder at a name, following links.
func OpenDir(c Calls, dir int, name string) (*Dir, error) {
	fd, err := c.Open(dir, name, Folder, 0)
	if err != nil {
		return nil, err
	}
	return asDir(fd)
}

// OpenDirNoLinks opens a handle of the folder at an absolute path that leads
// through no link.
func OpenDirNoLinks(c Calls, path string) (*Dir, error) {
	fd, err := c.OpenNoLinks(path)
	if err != nil {
		return nil, err
	}
	return asDir(fd)
}

func asDir(fd int) (*Dir, error) {
	real, err := RealPath(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Dir{FD: fd, Path: real}, nil
}

// SyncDir makes what happened to the names in a folder last. A folder that cannot
// be read cannot be flushed, and an error of the flush is none of the step's: the
// names are what they are.
func SyncDir(c Calls, d *Dir) {
	fd, err := Reopen(c, d.FD, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = Sync(fd)
}

// Object is a handle of any object, with what a look at it said.
type Object struct {
	FD int // -1: it could be looked at, not held
	Stat
	path string // the real path it was found at; "": ask the handle
}

// Now looks at the object again.
func (o *Object) Now() (Stat, error) {
	if o.FD < 0 {
		return o.Stat, nil
	}
	return StatFd(o.FD)
}

// Close closes the handle.
func (o *Object) Close() {
	if o.FD >= 0 {
		unix.Close(o.FD)
	}
}

// Hold opens a handle of the object at a name in a folder, a link itself included.
func Hold(c Calls, dir int, name string) (*Object, error) { return hold(c, dir, name, false) }

// HoldFollowing is Hold of what a link leads to.
func HoldFollowing(c Calls, dir int, name string) (*Object, error) { return hold(c, dir, name, true) }

// asObject makes an Object of a descriptor.
func asObject(fd int) (*Object, error) {
	st, err := StatFd(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Object{FD: fd, Stat: st}, nil
}

// RealPath is the path by which the kernel knows the object now; ENOENT: it has no
// name any more.
func (o *Object) RealPath() (string, error) {
	if o.path == "" {
		return RealPath(o.FD)
	}
	return standing(o.Stat, o.path)
}

// Open opens the object for use. Where that takes a path, ENOENT may also mean that
// it was moved at this very moment.
func (o *Object) Open(c Calls, flags int) (int, error) {
	if o.FD >= 0 {
		return Reopen(c, o.FD, flags)
	}
	return openSame(c, o.path, flags, o.Stat)
}

// standing is p if the object is at that path, else ENOENT.
func standing(is Stat, p string) (string, error) {
	there, err := StatAt(CWD, p)
	if err == nil && !is.Same(there) {
		err = unix.ENOENT
	}
	if err != nil {
		return "", err
	}
	return p, nil
}

// openSame opens an object by its real path, and nothing else that may be there by
// now.
func openSame(c Calls, p string, flags int, is Stat) (int, error) {
	fd, err := c.Open(CWD, p, flags|noLinks, 0)
	if err != nil {
		return -1, err
	}
	now, err := StatFd(fd)
	if err == nil && !is.Same(now) {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// FileID is the object's identity as receipts carry it: the inode number, a
// point, and the time of birth in nanoseconds, or the generation number where
// that is not kept. Inode numbers alone come back at once.
func (o *Object) FileID(c Calls) string {
	ino := strconv.FormatUint(o.Ino, 10)
	if o.BirthNs != 0 {
		return ino + "." + strconv.FormatInt(o.BirthNs, 10)
	}
	if g, ok := generation(c, o.FD); ok {
		return ino + "." + strconv.FormatUint(uint64(g), 10)
	}
	return ino
}

// Is reports whether id names the object. An id that is a bare number is compared
// with the inode number.
func (o *Object) Is(c Calls, id string) bool {
	if !strings.Contains(id, ".") {
		return id == strconv.FormatUint(o.Ino, 10)
	}
	return id == o.FileID(c)
}

// Readlink reads the target of the link at a name, verbatim.
func Readlink(dir int, name string) (string, error) {
	buf := make([]byte, 256)
	for {
		n, err := retry(func() (int, error) { return unix.Readlinkat(dir, name, buf) })
		if err != nil {
			return "", err
		}
		if n < len(buf) {
			return string(buf[:n]), nil
		}
		buf = make([]byte, 2*len(buf))
	}
}

// Names reads the names in a folder, a batch at a time, until take says stop.
func Names(c Calls, dir int, take func(name string) bool) error {
	fd, err := Reopen(c, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	// The library reads macOS's folders through the system's own reader, which alone
	// knows where it is in one that changes.
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	for {
		names, err := f.Readdirnames(namesAtOnce)
		for _, name := range names {
			if !take(name) {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return bare(err)
		}
	}
}

// namesAtOnce is how many names are asked for at once.
const namesAtOnce = 1024

// bare is the errno in an error of the library.
func bare(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

func nanos(sec, nsec int64) int64 { return sec*1e9 + nsec }
