package posix

// Calls are the system calls that some file systems lack or never return from.
// [System] makes them for real; a test embeds it and replaces the ones it wants
// to fail or to hang. Errors are bare errnos.
//
// A folder is given by its descriptor and a name in it. CWD in its place lets the
// name be an absolute path.
type Calls interface {
	// Open opens a name; close-on-exec is added.
	Open(dir int, name string, flags int, mode uint32) (int, error)
	// OpenNoLinks opens a handle of the folder at an absolute path that must not
	// lead through any symbolic link.
	OpenNoLinks(path string) (int, error)
	// OpenNameless opens a new file without a name for reading and writing.
	OpenNameless(dir int, mode uint32) (int, error)
	// Link gives a file opened by OpenNameless its first name. It replaces nothing.
	Link(fd int, dir int, name string) error
	// Rename moves a name over another.
	Rename(fromDir int, from string, toDir int, to string) error
	// RenameNew moves a name where there is none.
	RenameNew(fromDir int, from string, toDir int, to string) error
	// Exchange swaps two names in one step.
	Exchange(dir1 int, name1 string, dir2 int, name2 string) error
	// Clone makes an empty file share the content of another.
	Clone(dst, src int) error
	// Copy moves up to n bytes from src at its offset to dst at its own, inside
	// the kernel, and returns how many it moved; 0 at the end of src.
	Copy(dst, src int, n int) (int, error)
	// WrittenElsewhere reports whether anyone has the file open for writing. The
	// descriptor must be open for reading only. An error means: cannot be told.
	WrittenElsewhere(fd int) (bool, error)
	// Reserve makes sure that n bytes from offset on can be written, without
	// changing the file's size.
	Reserve(fd int, offset, n int64) error
	// Read reads from a file.
	Read(fd int, p []byte) (int, error)
}

// System makes the calls.
type System struct{}

var _ Calls = System{}
