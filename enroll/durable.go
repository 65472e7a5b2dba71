package enroll

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
)

// writeDurably puts a file in place whole: written beside its name, flushed,
// renamed over it, and the folder flushed too, so that after a power cut there
// is the old content or the new and never less.
func writeDurably(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), besideHead(path)+"*") // 0600 by itself
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if err := f.Chmod(fileMode); err != nil { // a default ACL of the folder may have widened it
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	_ = f.Close() // flushed above: nothing is left to fail
	return syncDir(filepath.Dir(path))
}

// besideHead begins the names of what becomes the file at path.
func besideHead(path string) string { return "." + filepath.Base(path) + "." }

// sweepBeside removes what writers of the file at path that were killed left beside
// it. A writer at work would lose its own. What somebody else removes meanwhile is
// no error, nor is a folder that is gone.
func sweepBeside(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	err = unlessGone(err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), besideHead(path)) {
			err = errors.Join(err, unlessGone(os.Remove(filepath.Join(filepath.Dir(path), e.Name()))))
		}
	}
	return err
}

// unlessGone is the error of a removal, or none if there was nothing to remove.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err // those two: a file system that cannot, and there is no other way
	}
	return nil
}

// makeFolder makes a folder of ours, and its parents, closed to others.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return fmt.Errorf("make a folder for the records: %w", err)
	}
	return nil
}

// locked runs do while holding an advisory lock on a folder, which keeps two
// processes from changing its record at once. do must be brief.
func locked(dir string, do func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // gives the lock back
	for {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX)
		if err == nil {
			return do()
		}
		if !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// withoutPath takes the path off an error whose wrapper names it already.
func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
