package posix

import "golang.org/x/sys/unix"

// What is done to the names in a folder.

// Mkdir makes a folder.
func Mkdir(dir int, name string, mode uint32) error {
	return again(func() error { return unix.Mkdirat(dir, name, mode) })
}

// Unlink removes what is no folder.
func Unlink(dir int, name string) error {
	return again(func() error { return unix.Unlinkat(dir, name, 0) })
}

// Rmdir removes an empty folder.
func Rmdir(dir int, name string) error {
	return again(func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
}

// HardLink gives a file one more name. It replaces nothing.
func HardLink(fromDir int, from string, toDir int, to string) error {
	return again(func() error { return unix.Linkat(fromDir, from, toDir, to, 0) })
}
