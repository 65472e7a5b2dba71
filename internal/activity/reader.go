package activity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sema-agent/device-executor/internal/regular"
)

// maxLineBytes is above every line a Recorder writes; what is longer is no line
// of ours.
const maxLineBytes = 1 << 20

// Reader reads the record of a device from its oldest line on, while it grows
// and is rotated. It is for one goroutine.
type Reader struct {
	dir    string
	file   *os.File
	sealed bool   // nothing is appended to file any more
	buffer []byte // read and not yet handed out
	offset int64  // in file, of what is not read yet
	tail   []byte // the last bytes before offset

	skipped   int
	gone      bool // the file read last is kept no longer
	overtaken int
}

// NewReader reads the record in a device's folder. There need not be one yet.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Skipped is the number of lines passed over because a crash had torn them, or
// because they are not of this record's form.
func (r *Reader) Skipped() int { return r.skipped }

// Overtaken is how often the record was put aside faster than it was read: the
// file read last was gone, and so may be others that came after it, with all of
// their lines. The lines that Next returns from then on come after those.
func (r *Reader) Overtaken() int { return r.overtaken }

// Close frees the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Next returns the next line. ok is false when there is none now; later there may
// be. Whatever is torn is skipped.
func (r *Reader) Next() (e Entry, ok bool, err error) {
	for {
		if line, rest, found := bytes.Cut(r.buffer, []byte{'\n'}); found {
			r.buffer = rest
			if e, ok := decode(line); ok {
				return e, true, nil
			}
			if len(line) > 0 {
				r.skipped++
			}
			continue
		}
		more, err := r.more()
		if err != nil {
			return Entry{}, false, fmt.Errorf("read the activity record: %w", err)
		}
		if !more {
			return Entry{}, false, nil
		}
	}
}

func decode(line []byte) (Entry, bool) {
	var e Entry
	if json.Unmarshal(line, &e) != nil || e.Time.IsZero() {
		return Entry{}, false
	}
	switch e.Phase {
	case Began, Ended, Gap:
		return e, true
	}
	return Entry{}, false
}

// more reads on, from the next file where this one is through. False: nothing
// there for now.
func (r *Reader) more() (bool, error) {
	for {
		if r.file == nil {
			if found, err := r.oldest(); !found || err != nil {
				return false, err
			}
		}
		if len(r.buffer) > maxLineBytes {
			r.buffer = r.buffer[:0]
			r.skipped++
		}
		if emptied, err := r.emptied(); err != nil {
			return false, err
		} else if emptied {
			r.buffer, r.offset, r.tail = nil, 0, nil
		}
		piece := make([]byte, batchBytes)
		n, err := r.file.ReadAt(piece, r.offset)
		if n > 0 {
			r.took(piece[:n])
			return true, nil
		}
		if err != nil && err != io.EOF {
			return false, err
		}
		place, err := r.place()
		switch {
		case err != nil:
			return false, err
		case place == 0:
			return false, nil // this is the file that grows
		case !r.sealed:
			// Put aside after our last look: it may have grown before that.
			r.sealed = true
		default:
			if moved, err := r.advance(place); !moved || err != nil {
				return false, err
			}
		}
	}
}

// tailBytes are enough to know the end of what was read by: they hold a line's
// time and its instruction's id.
const tailBytes = 512

func (r *Reader) took(piece []byte) {
	r.buffer = append(r.buffer, piece...)
	r.offset += int64(len(piece))
	r.tail = append(r.tail, piece...)
	r.tail = append([]byte(nil), r.tail[max(0, len(r.tail)-tailBytes):]...)
}

// emptied reports that somebody has emptied the file since it was read, however
// much was written to it after that: the end of what was read is there no longer.
func (r *Reader) emptied() (bool, error) {
	now := make([]byte, len(r.tail))
	_, err := r.file.ReadAt(now, r.offset-int64(len(now)))
	if err != nil && err != io.EOF {
		return false, err
	}
	return !bytes.Equal(now, r.tail), nil
}

// place returns the number that our file has now, or files if it is gone.
func (r *Reader) place() (int, error) {
	mine, err := r.file.Stat()
	if err != nil {
		return 0, err
	}
	for i := range files {
		if there, err := os.Stat(filepath.Join(r.dir, name(i))); err == nil && os.SameFile(mine, there) {
			return i, nil
		}
	}
	return files, nil
}

// advance goes on to the file after ours, which is the place-th now: the nearest
// one that is there, since in the middle of a rotation, or where somebody has
// tidied up, a number may be missing. False: there is none for now.
func (r *Reader) advance(place int) (moved bool, err error) {
	if place == files {
		r.gone = true
		return true, r.leave()
	}
	var next *os.File
	for i := place - 1; next == nil; i-- {
		if i < 0 {
			return false, nil
		}
		if next, err = regular.Open(filepath.Join(r.dir, name(i))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	// A rotation in between would have put a later file under that name.
	if now, err := r.place(); err != nil || now != place {
		_ = next.Close()
		return true, err
	}
	if err := r.leave(); err != nil {
		_ = next.Close()
		return false, err
	}
	r.file = next
	return true, nil
}

// leave closes a file that is through. What is left of it is a torn line.
func (r *Reader) leave() error {
	if len(r.buffer) > 0 {
		r.skipped++
	}
	err := r.file.Close()
	r.file, r.buffer, r.sealed = nil, nil, false
	r.offset, r.tail = 0, nil
	return err
}

// oldest opens the oldest file there is.
func (r *Reader) oldest() (found bool, err error) {
	for i := files - 1; i >= 0; i-- {
		f, err := regular.Open(filepath.Join(r.dir, name(i)))
		if err == nil {
			// Below the last number there would be the file after ours, and nobody put
			// ours aside: somebody took it away.
			if r.gone && i == files-1 {
				r.overtaken++
			}
			r.file, r.gone = f, false
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}
