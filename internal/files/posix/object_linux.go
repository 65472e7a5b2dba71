package posix

import (
	"errors"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// StatAt looks at a name in a folder without following it.
func StatAt(dir int, name string) (Stat, error) {
	return statAt(dir, name, unix.AT_SYMLINK_NOFOLLOW)
}

func statAt(dir int, name string, flags int) (Stat, error) {
	return statx(dir, name, flags|unix.AT_NO_AUTOMOUNT)
}

// StatFd looks at an open object.
func StatFd(fd int) (Stat, error) { return statx(fd, "", unix.AT_EMPTY_PATH) }

func statx(dir int, name string, flags int) (Stat, error) {
	var x unix.Statx_t
	err := again(func() error { return unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x) })
	if errors.Is(err, unix.ENOSYS) || (errors.Is(err, unix.EPERM) && name == "") {
		return stat(dir, name, flags)
	}
	if err != nil {
		return Stat{}, err
	}
	s := Stat{
		Dev: unix.Mkdev(x.Dev_major, x.Dev_minor), Ino: x.Ino, Mode: uint32(x.Mode),
		Size: int64(x.Size), MtimeNs: nanos(x.Mtime.Sec, int64(x.Mtime.Nsec)), CtimeNs: nanos(x.Ctime.Sec, int64(x.Ctime.Nsec)),
		UID: x.Uid, GID: x.Gid, Links: uint64(x.Nlink),
		AppendOnly: x.Attributes&unix.STATX_ATTR_APPEND != 0,
	}
	if x.Mask&unix.STATX_BTIME != 0 {
		s.BirthNs = nanos(x.Btime.Sec, int64(x.Btime.Nsec))
	}
	return s, nil
}

// stat is for kernels and sandboxes without statx.
func stat(dir int, name string, flags int) (Stat, error) {
	var x unix.Stat_t
	err := again(func() error {
		if name == "" {
			return unix.Fstat(dir, &x)
		}
		return unix.Fstatat(dir, name, &x, flags&unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return Stat{}, err
	}
	return Stat{
		Dev: uint64(x.Dev), Ino: x.Ino, Mode: x.Mode, Size: x.Size,
		MtimeNs: x.Mtim.Nano(), CtimeNs: x.Ctim.Nano(),
		UID: x.Uid, GID: x.Gid, Links: uint64(x.Nlink),
	}, nil
}

// RealPath is the path by which the kernel knows an open object now. It fails
// with ENOENT when the object has no name any more.
func RealPath(fd int) (string, error) {
	buf := make([]byte, 512)
	for {
		n, err := retry(func() (int, error) { return unix.Readlink(procPath(fd), buf) })
		if err != nil {
			return "", err
		}
		if n == len(buf) {
			buf = make([]byte, 2*len(buf))
			continue
		}
		p := string(buf[:n])
		if !strings.HasPrefix(p, "/") || p == "/" {
			if p == "/" {
				return p, nil
			}
			return "", unix.ENOENT
		}
		// The kernel marks a removed object in its text only, and a name may well
		// end like that mark: ask for the object.
		here, err := StatFd(fd)
		if err != nil {
			return "", err
		}
		return standing(here, p)
	}
}

func hold(c Calls, dir int, name string, follow bool) (*Object, error) {
	flags := Handle
	if !follow {
		flags = HandleNoFollow
	}
	fd, err := c.Open(dir, name, flags, 0)
	if err != nil {
		return nil, err
	}
	return asObject(fd)
}

// LinksToObjects reports whether the links in a folder lead to an object itself
// whatever their text says.
func LinksToObjects(dir int) bool {
	var fs unix.Statfs_t
	err := again(func() error { return unix.Fstatfs(dir, &fs) })
	return err == nil && fs.Type == unix.PROC_SUPER_MAGIC
}

// InOverlay reports whether an object is in an overlay, which makes a new object of
// it, born later, when it is first changed.
func InOverlay(fd int) bool {
	var fs unix.Statfs_t
	err := again(func() error { return unix.Fstatfs(fd, &fs) })
	return err == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// Reopen opens the object behind a handle for use.
func Reopen(c Calls, fd int, flags int) (int, error) { return c.Open(CWD, procPath(fd), flags, 0) }

// getVersion is FS_IOC_GETVERSION, _IOR('v', 1, long).
const getVersion = 2<<30 | uint(unsafe.Sizeof(uintptr(0)))<<16 | 'v'<<8 | 1

// generation is what some file systems count up when they use an inode number again.
func generation(c Calls, fd int) (uint32, bool) {
	r, err := Reopen(c, fd, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return 0, false
	}
	defer unix.Close(r)
	g, err := unix.IoctlGetUint32(r, getVersion)
	return g, err == nil
}

// Writable reports whether this process might open the object at a name in a folder
// for writing; the error is the system's word against it.
func (o *Object) Writable(*Dir, string) error {
	return again(func() error { return unix.Faccessat(CWD, procPath(o.FD), unix.W_OK, unix.AT_EACCESS) })
}

// Chmod sets the permission bits of the object behind a handle.
func Chmod(fd int, mode uint32) error {
	return again(func() error { return unix.Fchmodat(CWD, procPath(fd), mode&07777, 0) })
}

// Chown sets the owner of the object behind a handle; -1 leaves one as it is.
func Chown(fd, uid, gid int) error {
	return again(func() error { return unix.Fchownat(CWD, procPath(fd), uid, gid, 0) })
}

// notKept are attributes that vouch for the content: a plain write drops them too.
var notKept = map[string]bool{"security.capability": true, "security.ima": true, "security.evm": true}

// accessACL is where Linux keeps an object's access control list.
const accessACL = "system.posix_acl_access"

// CopyAttributes makes the extended attributes of dst (access control list and
// label included) those of src, as far as this process may.
func CopyAttributes(dst int, src *Object) error {
	had, err := listAttributes(src.FD)
	if err != nil {
		return ignoreRefusal(err)
	}
	acl := false
	for _, name := range had {
		if notKept[name] {
			continue
		}
		acl = acl || name == accessACL
		value, err := attribute(src.FD, name)
		if err == nil {
			err = again(func() error { return unix.Setxattr(procPath(dst), name, value, 0) })
		}
		if err := ignoreRefusal(err); err != nil {
			return err
		}
	}
	if acl {
		return nil
	}
	// A list inherited from the folder is not the old object's.
	err = again(func() error { return unix.Removexattr(procPath(dst), accessACL) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return ignoreRefusal(err)
}

// ignoreRefusal drops the errors that mean: not allowed or not possible here.
func ignoreRefusal(err error) error {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOTSUP, unix.ENOSYS, unix.EINVAL, unix.ENODATA} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func listAttributes(fd int) ([]string, error) {
	for {
		n, err := retry(func() (int, error) { return unix.Listxattr(procPath(fd), nil) })
		if err != nil || n == 0 {
			return nil, err
		}
		buf := make([]byte, n)
		n, err = retry(func() (int, error) { return unix.Listxattr(procPath(fd), buf) })
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 }), nil
	}
}

func attribute(fd int, name string) ([]byte, error) {
	for {
		n, err := retry(func() (int, error) { return unix.Getxattr(procPath(fd), name, nil) })
		if err != nil || n == 0 {
			return nil, err
		}
		buf := make([]byte, n)
		n, err = retry(func() (int, error) { return unix.Getxattr(procPath(fd), name, buf) })
		if errors.Is(err, unix.ERANGE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}
