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
	var x unix.Stat_t
	if err := unix.Fstatat(dir, name, &x, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Stat{}, err
	}
	return fromStat(&x), nil
}

// StatFd looks at an open object.
func StatFd(fd int) (Stat, error) {
	var x unix.Stat_t
	if err := unix.Fstat(fd, &x); err != nil {
		return Stat{}, err
	}
	return fromStat(&x), nil
}

func fromStat(x *unix.Stat_t) Stat {
	return Stat{
		Dev: uint64(x.Dev), Ino: x.Ino, Mode: uint32(x.Mode), Size: x.Size,
		MtimeNs: nanos(x.Mtim.Unix()), CtimeNs: nanos(x.Ctim.Unix()), BirthNs: nanos(x.Btim.Unix()),
		UID: x.Uid, GID: x.Gid,
		AppendOnly: x.Flags&(unix.UF_APPEND|unix.SF_APPEND) != 0,
	}
}

// RealPath is the path by which the kernel knows an open object now.
func RealPath(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPATH, int(uintptr(unsafe.Pointer(&buf[0])))); err != nil {
		return "", err
	}
	return string(buf[:bytes.IndexByte(buf, 0)]), nil
}

// LinksToObjects reports whether the links in a folder lead to an object itself
// whatever their text says: there are none here.
func LinksToObjects(int) bool { return false }

// InOverlay reports whether an object is in an overlay: there are none here.
func InOverlay(int) bool { return false }

// Reopen opens the object behind a handle for use: there is no way but its path,
// so what was opened is compared with the handle.
func Reopen(c Calls, fd int, flags int) (int, error) {
	p, err := RealPath(fd)
	if err != nil {
		return -1, err
	}
	again, err := c.Open(CWD, p, flags|unix.O_NOFOLLOW_ANY, 0)
	if err != nil {
		return -1, err
	}
	before, err := StatFd(fd)
	if err == nil {
		var after Stat
		if after, err = StatFd(again); err == nil && !before.Same(after) {
			err = unix.ENOENT
		}
	}
	if err != nil {
		unix.Close(again)
		return -1, err
	}
	return again, nil
}

func generation(Calls, int) (uint32, bool) { return 0, false }

// Writable reports whether this process might open the object behind a handle
// for writing; the error is the system's word against it.
func Writable(fd int) error {
	p, err := RealPath(fd)
	if err != nil {
		return err
	}
	return unix.Faccessat(CWD, p, unix.W_OK, unix.AT_EACCESS)
}

// Chmod sets the permission bits of the object behind a handle.
func Chmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode&07777) }

// Chown sets the owner of the object behind a handle; -1 leaves one as it is.
func Chown(fd, uid, gid int) error { return unix.Fchown(fd, uid, gid) }

// CopyAttributes makes the extended attributes of dst those of src, as far as
// this process may.
func CopyAttributes(dst, src int) error {
	n, err := unix.Flistxattr(src, nil)
	if err != nil || n == 0 {
		return ignoreRefusal(err)
	}
	list := make([]byte, n)
	if n, err = unix.Flistxattr(src, list); err != nil {
		return ignoreRefusal(err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(list[:n]), "\x00"), "\x00") {
		size, err := unix.Fgetxattr(src, name, nil)
		value := make([]byte, max(size, 0))
		if err == nil && size > 0 {
			_, err = unix.Fgetxattr(src, name, value)
		}
		if err == nil {
			err = unix.Fsetxattr(dst, name, value, 0)
		}
		if err := ignoreRefusal(err); err != nil {
			return err
		}
	}
	return nil
}

// ignoreRefusal drops the errors that mean: not allowed or not possible here.
func ignoreRefusal(err error) error {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOTSUP, unix.ENOSYS, unix.EINVAL, unix.ENOATTR} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
