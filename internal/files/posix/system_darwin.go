package posix

import (
	"golang.org/x/sys/unix"
)

// Flags of Open that differ between systems.
const (
	CWD = unix.AT_FDCWD
	// Handle opens the object for what is known of it, not for its content. It takes
	// the right to read all the same.
	Handle = unix.O_EVTONLY
	// HandleNoFollow is Handle for the link itself where the name is a link.
	HandleNoFollow = unix.O_EVTONLY | unix.O_SYMLINK
	// Folder opens a handle of a folder; reading it is another right.
	Folder = unix.O_SEARCH

	noLinks = unix.O_NOFOLLOW_ANY

	severalSpellings = true // of one name
)

// Open implements Calls.
func (System) Open(dir int, name string, flags int, mode uint32) (int, error) {
	return retry(func() (int, error) { return unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode) })
}

// OpenNoLinks implements Calls.
func (s System) OpenNoLinks(p string) (int, error) {
	return s.Open(CWD, p, Folder|unix.O_NOFOLLOW_ANY, 0)
}

// OpenNameless implements Calls: there is none here.
func (System) OpenNameless(int, uint32) (int, error) { return -1, unix.ENOTSUP }

// Link implements Calls: there is nothing to link.
func (System) Link(int, int, string) error { return unix.ENOTSUP }

// Rename implements Calls.
func (System) Rename(fromDir int, from string, toDir int, to string) error {
	return again(func() error { return unix.Renameat(fromDir, from, toDir, to) })
}

// RenameNew implements Calls.
func (System) RenameNew(fromDir int, from string, toDir int, to string) error {
	return again(func() error { return unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_EXCL) })
}

// Exchange implements Calls.
func (System) Exchange(dir1 int, name1 string, dir2 int, name2 string) error {
	return again(func() error { return unix.RenameatxNp(dir1, name1, dir2, name2, unix.RENAME_SWAP) })
}

// Clone implements Calls: cloning here makes a new file, not content for an open
// one, so a file is copied.
func (System) Clone(int, int) error { return unix.ENOTSUP }

// Copy implements Calls: there is none here.
func (System) Copy(int, int, int) (int, error) { return 0, unix.ENOSYS }

// WrittenElsewhere implements Calls: it cannot be asked here.
func (System) WrittenElsewhere(int) (bool, error) { return false, unix.ENOTSUP }

// Reserve implements Calls.
func (System) Reserve(fd int, offset, n int64) error {
	return unix.FcntlFstore(uintptr(fd), unix.F_PREALLOCATE, &unix.Fstore_t{
		Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n,
	})
}

// Read implements Calls.
func (System) Read(fd int, p []byte) (int, error) {
	return retry(func() (int, error) { return unix.Read(fd, p) })
}

// Sync flushes a file or a folder to the disk itself, where that can be asked for.
// An error of the disk is told once: another kind of flush would not repeat it.
func Sync(fd int) error {
	_, err := retry(func() (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0) })
	if !Missing(err) {
		return err
	}
	return again(func() error { return unix.Fsync(fd) })
}
