package posix

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StatAt looks at a name in a folder without following it.
func StatAt(dir int, name string) (Stat, error) {
	return statAt(dir, name, unix.AT_SYMLINK_NOFOLLOW)
}

func statAt(dir int, name string, flags int) (Stat, error) {
	var x unix.Stat_t
	if err := again(func() error { return unix.Fstatat(dir, name, &x, flags) }); err != nil {
		return Stat{}, err
	}
	return fromStat(&x), nil
}

// StatFd looks at an open object.
func StatFd(fd int) (Stat, error) {
	var x unix.Stat_t
	if err := again(func() error { return unix.Fstat(fd, &x) }); err != nil {
		return Stat{}, err
	}
	return fromStat(&x), nil
}

func fromStat(x *unix.Stat_t) Stat {
	return Stat{
		Dev: uint64(x.Dev), Ino: x.Ino, Mode: uint32(x.Mode), Size: x.Size,
		MtimeNs: nanos(x.Mtim.Unix()), CtimeNs: nanos(x.Ctim.Unix()), BirthNs: nanos(x.Btim.Unix()),
		UID: x.Uid, GID: x.Gid, Links: uint64(x.Nlink),
		AppendOnly: x.Flags&(unix.UF_APPEND|unix.SF_APPEND) != 0,
	}
}

// RealPath is the path by which the kernel knows an open object now. It fails
// with ENOENT when the object has no name any more: the kernel goes on to tell the
// last one.
func RealPath(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPATH, int(uintptr(unsafe.Pointer(&buf[0])))); err != nil {
		return "", err
	}
	p, _, _ := bytes.Cut(buf, []byte{0})
	is, err := StatFd(fd)
	if err != nil {
		return "", err
	}
	return standing(is, string(p))
}

// A handle is a descriptor that could be read from, but counts as none to whoever
// ejects the disk.
func hold(c Calls, dir int, name string, follow bool) (*Object, error) {
	return lookFirst{
		file:   Handle | unix.O_NONBLOCK | unix.O_NOCTTY,
		folder: Folder,
		link:   HandleNoFollow | unix.O_NONBLOCK,
	}.hold(c, dir, name, follow)
}

// LinksToObjects reports whether the links in a folder lead to an object itself
// whatever their text says: there are none here.
func LinksToObjects(int) bool { return false }

// InOverlay reports whether an object is in an overlay: there are none here.
func InOverlay(int) bool { return false }

// Reopen opens the object behind a handle for use. For a file there is no way but
// its path, so what was opened is compared with the handle; ENOENT may mean that it
// was moved at this very moment.
func Reopen(c Calls, fd int, flags int) (int, error) {
	if flags&unix.O_DIRECTORY != 0 {
		return c.Open(fd, ".", flags, 0)
	}
	p, err := RealPath(fd)
	if err != nil {
		return -1, err
	}
	is, err := StatFd(fd)
	if err != nil {
		return -1, err
	}
	return openSame(c, p, flags, is)
}

func generation(Calls, int) (uint32, bool) { return 0, false }

// Writable reports whether this process might open the object at a name in a folder
// for writing; the error is the system's word against it.
func (o *Object) Writable(dir *Dir, name string) error {
	return again(func() error { return unix.Faccessat(dir.FD, name, unix.W_OK, unix.AT_EACCESS) })
}

// Chmod sets the permission bits of the object behind a handle.
func Chmod(fd int, mode uint32) error {
	return again(func() error { return unix.Fchmod(fd, mode&07777) })
}

// Chown sets the owner of the object behind a handle; -1 leaves one as it is.
func Chown(fd, uid, gid int) error {
	return again(func() error { return unix.Fchown(fd, uid, gid) })
}

// CopyAttributes makes the extended attributes of dst, its access control list and
// what its owner may flag those of src, as far as this process may.
func CopyAttributes(dst int, src *Object) error {
	if src.FD < 0 {
		return nil // whoever may not read it may not read these either
	}
	if err := copyExtended(dst, src.FD); err != nil {
		return err
	}
	copyACL(dst, src.FD)
	return ignoreRefusal(copyFlags(dst, src.FD))
}

func copyExtended(dst, src int) error {
	n, err := unix.Flistxattr(src, nil)
	if err != nil || n == 0 {
		return ignoreRefusal(err)
	}
	list := make([]byte, n)
	if n, err = unix.Flistxattr(src, list); err != nil {
		return ignoreRefusal(err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(list[:n]), "\x00"), "\x00") {
		value, err := extended(src, name)
		if err == nil {
			err = unix.Fsetxattr(dst, name, value, 0)
		}
		if err := ignoreRefusal(err); err != nil {
			return err
		}
	}
	return nil
}

func extended(fd int, name string) ([]byte, error) {
	for {
		n, err := unix.Fgetxattr(fd, name, nil)
		if err != nil || n == 0 {
			return nil, err
		}
		value := make([]byte, n)
		n, err = unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ERANGE) { // it grew
			continue
		}
		if err != nil {
			return nil, err
		}
		return value[:n], nil
	}
}

// copyFlags hands on the flags that a plain write would leave: the others keep a
// file from being replaced, or say how its old content is stored.
func copyFlags(dst, src int) error {
	const kept = unix.UF_HIDDEN | unix.UF_NODUMP
	var was, is unix.Stat_t
	if err := errors.Join(unix.Fstat(src, &was), unix.Fstat(dst, &is)); err != nil {
		return err
	}
	flags := is.Flags&^kept | was.Flags&kept
	if flags == is.Flags {
		return nil
	}
	return unix.Fchflags(dst, int(flags))
}

// copyACL also takes away a list inherited from the folder, which is not the old
// object's. What goes wrong leaves the new object as it is.
func copyACL(dst, src int) {
	list, err := acl(src)
	if err != nil {
		return
	}
	if own, err := acl(dst); err != nil || bytes.Equal(own, list) {
		return
	}
	order := aclOrder(list)
	//lint:ignore SA1019 the library has no wrapper of the system's own
	_, _, _ = unix.Syscall6(unix.SYS_FSETATTRLIST, uintptr(dst), uintptr(unsafe.Pointer(&aclOnly)),
		uintptr(unsafe.Pointer(&order[0])), uintptr(len(order)), 0, 0)
}

// acl is an object's access control list, nil if it has none.
func acl(fd int) ([]byte, error) {
	answer := make([]byte, mostACL)
	//lint:ignore SA1019 the library has no wrapper of the system's own
	_, _, errno := unix.Syscall6(unix.SYS_FGETATTRLIST, uintptr(fd), uintptr(unsafe.Pointer(&aclOnly)),
		uintptr(unsafe.Pointer(&answer[0])), uintptr(len(answer)), 0, 0)
	if errno != 0 {
		return nil, errno
	}
	return aclIn(answer), nil
}

var aclOnly = unix.Attrlist{Bitmapcount: unix.ATTR_BIT_MAP_COUNT, Commonattr: unix.ATTR_CMN_EXTENDED_SECURITY}

// mostACL is more than a list of 128 entries, the most there are, takes.
const mostACL = 4 << 10

// ignoreRefusal drops the errors that mean: not allowed or not possible here.
func ignoreRefusal(err error) error {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOTSUP, unix.ENOSYS, unix.EINVAL, unix.ENOATTR} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
