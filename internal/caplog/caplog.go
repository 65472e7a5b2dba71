// Package caplog writes a log file that never grows past its cap: when a record
// would not fit, the file becomes the previous one (its name + ".1", replacing
// what was there) and a new one begins. So there are at most two files of the
// cap's size, and at least a cap's worth of the latest records.
//
// Records are written whole, in one call, to a file opened for appending. A file
// that somebody moved or removed meanwhile is begun anew.
package caplog

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// DefaultCap is enough for weeks of an executor's log.
const DefaultCap = 10 << 20

// Writer is a capped log file. It may be used by several goroutines.
type Writer struct {
	path   string
	cap    int64
	opened func(*os.File)

	mu   sync.Mutex
	file *os.File
	size int64
}

// Open opens the log at path, making it (0600) and its folders (0700) if they
// are not there. opened, unless nil, is called with each file that records go to
// from then on, the first one before Open returns; it must not keep it.
func Open(path string, cap int64, opened func(*os.File)) (*Writer, error) {
	if opened == nil {
		opened = func(*os.File) {}
	}
	w := &Writer{path: path, cap: cap, opened: opened}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return w, nil
}

// Previous is where the records before those in the log at path are.
func Previous(path string) string { return path + ".1" }

// open begins or continues the file at the path.
func (w *Writer) open() error {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // nothing was written to it
		return err
	}
	if w.file != nil {
		_ = w.file.Close() // the kernel has what was written; a log is not synced
	}
	w.file, w.size = f, info.Size()
	w.opened(f)
	return nil
}

// Write appends a record. What of it is longer than the cap is left out. An
// error (a full disk, say) loses this record and no later one.
func (w *Writer) Write(record []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return 0, os.ErrClosed
	}
	fits := record
	if int64(len(fits)) > w.cap {
		fits = fits[:w.cap]
	}
	if err := w.ready(int64(len(fits))); err != nil {
		return 0, fmt.Errorf("write the log: %w", err)
	}
	n, err := w.file.Write(fits)
	w.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("write the log: %w", err)
	}
	return len(record), nil
}

// ready makes the open file the one at the path, with room for n bytes.
func (w *Writer) ready(n int64) error {
	if !w.current() {
		if err := w.open(); err != nil {
			return err
		}
	}
	if w.size+n <= w.cap {
		return nil
	}
	if err := os.Rename(w.path, Previous(w.path)); err == nil {
		return w.open()
	}
	// It cannot be moved away. The cap holds even so: the past goes.
	if err := w.file.Truncate(0); err != nil {
		return err
	}
	w.size = 0
	return nil
}

// current reports whether the open file is still the one at the path.
func (w *Writer) current() bool {
	there, err := os.Stat(w.path)
	if err != nil {
		return false
	}
	open, err := w.file.Stat()
	if err != nil || !os.SameFile(there, open) {
		return false
	}
	w.size = open.Size() // somebody may have emptied it, or written too
	return true
}

// Close closes the file. Records after that are refused.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}
