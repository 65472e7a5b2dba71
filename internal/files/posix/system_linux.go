package posix

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Flags of Open that differ between systems.
const (
	CWD = unix.AT_FDCWD
	// Handle opens the object itself: no permission on it is needed, nothing
	// happens to it (a device is not touched, a FIFO is not waited for).
	Handle = unix.O_PATH
	// HandleNoFollow is Handle for the link itself where the name is a link.
	HandleNoFollow = unix.O_PATH | unix.O_NOFOLLOW
	// Folder opens a handle of a folder; reading it is another right.
	Folder = unix.O_PATH | unix.O_DIRECTORY

	noLinks = unix.O_NOFOLLOW // for paths that have none before their last name

	severalSpellings = false // of one name
)

// Open implements Calls.
func (System) Open(dir int, name string, flags int, mode uint32) (int, error) {
	return retry(func() (int, error) { return unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode) })
}

// OpenNoLinks implements Calls. Where the kernel has no openat2 (or a sandbox
// hides it) the path is walked by hand, which has the same answer.
func (s System) OpenNoLinks(p string) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat2(CWD, p, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS,
		})
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return s.walkNoLinks(p)
	}
	return fd, err
}

func (s System) walkNoLinks(p string) (int, error) {
	fd, err := s.Open(CWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.Trim(path.Clean(p), "/"), "/") {
		if name == "" {
			continue
		}
		// A link opened so is a link, and no folder: ENOTDIR.
		next, err := s.Open(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// OpenNameless implements Calls.
func (System) OpenNameless(dir int, mode uint32) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode)
	})
}

// Link implements Calls. The way through /proc needs no privilege on any kernel,
// unlike AT_EMPTY_PATH.
func (System) Link(fd int, dir int, name string) error {
	return again(func() error { return unix.Linkat(CWD, procPath(fd), dir, name, unix.AT_SYMLINK_FOLLOW) })
}

// Rename implements Calls.
func (System) Rename(fromDir int, from string, toDir int, to string) error {
	return again(func() error { return unix.Renameat(fromDir, from, toDir, to) })
}

// RenameNew implements Calls.
func (System) RenameNew(fromDir int, from string, toDir int, to string) error {
	return again(func() error { return unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE) })
}

// Exchange implements Calls.
func (System) Exchange(dir1 int, name1 string, dir2 int, name2 string) error {
	return again(func() error { return unix.Renameat2(dir1, name1, dir2, name2, unix.RENAME_EXCHANGE) })
}

// Clone implements Calls.
func (System) Clone(dst, src int) error { return unix.IoctlFileClone(dst, src) }

// Copy implements Calls.
func (System) Copy(dst, src int, n int) (int, error) {
	return retry(func() (int, error) { return unix.CopyFileRange(src, nil, dst, nil, n, 0) })
}

// WrittenElsewhere implements Calls: a read lease is refused with EAGAIN while
// anyone has the file open for writing. It is dropped at once.
func (System) WrittenElsewhere(fd int) (bool, error) {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if errors.Is(err, unix.EAGAIN) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return false, err
}

// Reserve implements Calls. What does not fit anyway is not tried: some file
// systems keep what they could reserve until then, behind the end of the file.
func (System) Reserve(fd int, offset, n int64) error {
	var fs unix.Statfs_t
	if err := again(func() error { return unix.Fstatfs(fd, &fs) }); err == nil && fs.Blocks > 0 {
		block := int64(fs.Frsize)
		if block <= 0 {
			block = int64(fs.Bsize)
		}
		if block > 0 && uint64(n/block) > fs.Bfree {
			return unix.ENOSPC
		}
	}
	return again(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, offset, n) })
}

// Read implements Calls.
func (System) Read(fd int, p []byte) (int, error) {
	return retry(func() (int, error) { return unix.Read(fd, p) })
}

// Sync flushes a file or a folder to the disk.
func Sync(fd int) error {
	return again(func() error { return unix.Fsync(fd) })
}
