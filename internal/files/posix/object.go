package posix

import (
	"errors"
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
	fd, err := c.Open(dir, name, Handle|unix.O_DIRECTORY, 0)
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
	FD int
	Stat
}

// Now looks at the object again.
func (o *Object) Now() (Stat, error) {
	if o.FD < 0 {
		return o.Stat, nil
	}
	return StatFd(o.FD)
}

// Close closes the handle.
func (o *Object) Close() { unix.Close(o.FD) }

// Hold opens a handle of the object at a name in a folder, a link itself included.
func Hold(c Calls, dir int, name string) (*Object, error) {
	return hold(c, dir, name, HandleNoFollow)
}

// HoldFollowing is Hold of what a link leads to.
func HoldFollowing(c Calls, dir int, name string) (*Object, error) {
	return hold(c, dir, name, Handle)
}

func hold(c Calls, dir int, name string, flags int) (*Object, error) {
	fd, err := c.Open(dir, name, flags, 0)
	if err != nil {
		return nil, err
	}
	st, err := StatFd(fd)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Object{FD: fd, Stat: st}, nil
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
		n, err := unix.Readlinkat(dir, name, buf)
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
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if !take(name) {
				return nil
			}
		}
	}
}

func nanos(sec, nsec int64) int64 { return sec*1e9 + nsec }

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
