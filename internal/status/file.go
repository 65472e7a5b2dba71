package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sema-agent/device-executor/internal/regular"
)

// MaxBytes is the largest file Load reads. Write never makes one so large.
const MaxBytes = 1 << 20

// BrokenError reports a file that is there and is no snapshot.
type BrokenError struct {
	Path string
	Err  error
}

// Error implements error.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the status file %s cannot be used (a running executor writes it anew): %v", e.Path, e.Err)
}

// Unwrap returns why.
func (e *BrokenError) Unwrap() error { return e.Err }

// Write replaces the file at path by s, with mode 0600. A reader sees the old
// snapshot or the new one. It is not flushed to the disk: after a crash of the
// machine nobody runs of whom it could speak.
func Write(path string, s *Snapshot) (err error) {
	b, err := Encode(s)
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // 0600
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// Encode returns the JSON form of s, one line, of the present layout.
func Encode(s *Snapshot) ([]byte, error) {
	s.Format = Format
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%d bytes are too many (%d)", len(b), MaxBytes)
	}
	return b, nil
}

// Sweep removes what writers that were killed in the middle of a Write left beside
// the file at path. Only the holder of the instance lock may call it.
func Sweep(path string) {
	left, err := filepath.Glob(escape(path) + ".new-*")
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name)
	}
}

// escape makes a literal of a path for filepath.Glob.
func escape(path string) string {
	var out []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			out = append(out, '\\')
		}
		out = append(out, path[i])
	}
	return string(out)
}

// Load reads the file at path. The error wraps fs.ErrNotExist if there is none, and
// is a *BrokenError if it holds no snapshot of this layout.
func Load(path string) (*Snapshot, error) {
	b, err := regular.Read(path, MaxBytes)
	var refused *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("read status: %w", err)
	case errors.As(err, &refused): // the path is named once
		return nil, &BrokenError{Path: path, Err: refused.Err}
	case err != nil:
		return nil, &BrokenError{Path: path, Err: err}
	}
	s, err := Decode(b)
	if err != nil {
		return nil, &BrokenError{Path: path, Err: err}
	}
	return s, nil
}

// Decode reads a snapshot from its JSON form. Unknown members are ignored, missing
// ones are zero.
func Decode(b []byte) (*Snapshot, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	}
	var s Snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, &contentError{err}
	}
	if s.Format != Format {
		return nil, fmt.Errorf("layout %d is not known", s.Format)
	}
	if s.PID <= 0 || s.State.Phase == "" {
		return nil, errors.New("it names no process or no state")
	}
	return &s, nil
}

// contentError says in plain words that a file is no snapshot; the library's
// words stay inside.
type contentError struct{ err error }

func (*contentError) Error() string { return "its content is not of its form" }

func (e *contentError) Unwrap() error { return e.err }
