package fence

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode/utf8"
)

// EntryKind says what an entry of the ledger is about.
type EntryKind string

// The kinds of entries.
const (
	EntryProcess EntryKind = "process"
	EntryTemp    EntryKind = "temp"
)

// Entry is one thing that must not outlive a crash unnoticed.
//
// An entry is a claim, not a proof: whoever acts on it looks first whether the
// process, or the object, is still the one the entry names (same boot, same start
// time; same identity), and leaves everything else alone.
type Entry struct {
	Kind          EntryKind `json:"kind"`
	InstructionID string    `json:"instructionId"`

	// Of a command's process, or of the executor itself where that stands for its
	// commands (macOS): the run of the operating system, the pid, and when the process
	// started, in the unit its operating system has for it. A pid alone is reused.
	BootID    string `json:"bootId,omitempty"`
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"startTime,omitempty"`

	// Of a temporary: the file to be written, the temporary's name in the same folder
	// ("" while it has none), the identity of the object we made, and, while it may
	// have changed places with the target, the identity expected there.
	Target   string `json:"target,omitempty"`
	Temp     string `json:"temp,omitempty"`
	Ours     string `json:"ours,omitempty"`
	Expected string `json:"expected,omitempty"`
}

// errEntry is why an entry is not believed.
var errEntry = errors.New("ledger: not an entry")

// check refuses what no honest entry says. Process 1 and its like are nobody's
// command, and a temporary lies beside its target.
func (e *Entry) check() error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", errEntry, what) }
	switch e.Kind {
	case EntryProcess:
		switch {
		case e.PID <= 1 || e.PID > 1<<30:
			return bad("pid")
		case e.BootID == "":
			return bad("no boot id")
		case e.StartTime == 0:
			return bad("no start time")
		case e.Target != "" || e.Temp != "" || e.Ours != "" || e.Expected != "":
			return bad("a process with a file")
		}
	case EntryTemp:
		switch {
		case !filepath.IsAbs(e.Target) || filepath.Clean(e.Target) != e.Target || e.Target == "/" || strings.ContainsRune(e.Target, 0):
			return bad("target")
		case e.Temp == "." || e.Temp == ".." || strings.ContainsAny(e.Temp, "/\x00") || e.Temp == filepath.Base(e.Target):
			return bad("temporary")
		case e.PID != 0 || e.BootID != "" || e.StartTime != 0:
			return bad("a file with a process")
		}
	default:
		return bad("kind")
	}
	return nil
}

// Key names an entry for its removal.
type Key string

// Found is an entry that is in the ledger.
type Found struct {
	Key Key
	Entry
}

// maxEntryBytes is more than an entry of the longest paths takes.
const maxEntryBytes = 64 << 10

const (
	entrySuffix = ".json"
	badSuffix   = ".bad"
	mostBad     = 64 // set-aside files kept; older ones go
)

// Ledger is a folder with one small file per entry. Its files survive the process,
// however it ends. They are not flushed: what a power cut leaves is the concern of
// nobody's processes, and an entry lost with it leaves at worst a temporary file.
//
// Its methods may be called from any goroutine.
type Ledger struct {
	dir  string
	run  string // makes the names of this process unlike those of earlier ones
	next atomic.Int64

	mu     sync.Mutex
	spares []string // names of files that an entry may be written over
	vacant []string // names of spares that are missing
}

// OpenLedger opens the ledger in dir, making the folder (0700) in an existing one.
func OpenLedger(dir string) (*Ledger, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ledger: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("ledger %s: not a folder: move it away", dir)
	}
	l := &Ledger{dir: dir, run: strconv.Itoa(os.Getpid())}
	l.keepSpares()
	return l, nil
}

// Add writes an entry, before the thing it is about exists or can do anything. Where
// the disk is full, it takes one of the files kept for that.
func (l *Ledger) Add(e Entry) (Key, error) {
	if err := e.check(); err != nil {
		return "", err
	}
	text, err := formatEntry(e)
	if err != nil {
		return "", err
	}
	for {
		key := Key(fmt.Sprintf("%s-%s-%d%s", e.Kind, l.run, l.next.Add(1), entrySuffix))
		err := l.write(key, text)
		if noRoom(err) {
			if spare := l.fromSpare(key, text); spare == nil || errors.Is(spare, fs.ErrExist) {
				err = spare
			} else {
				err = fmt.Errorf("%w, and %w", err, spare)
			}
		}
		switch {
		case errors.Is(err, fs.ErrExist): // an earlier process of our pid left it
			continue
		case err != nil:
			return "", fmt.Errorf("ledger: add: %w", err)
		}
		return key, nil
	}
}

// write makes an entry's file, or leaves none.
func (l *Ledger) write(key Key, text []byte) error {
	f, err := os.OpenFile(l.path(key), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(l.path(key))
	}
	return err
}

// Remove takes an entry out, once the thing it is about is over. Removing one that
// is gone is fine.
func (l *Ledger) Remove(key Key) error {
	if l.toSpare(key) {
		return nil
	}
	if err := os.Remove(l.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ledger: remove: %w", err)
	}
	return nil
}

func (l *Ledger) path(key Key) string { return filepath.Join(l.dir, filepath.Base(string(key))) }

// Entries lists what the ledger holds, by name. A file that is torn, forged, or
// otherwise not an entry is set aside under a name that is never read again, and
// named in aside; it never makes the listing fail.
func (l *Ledger) Entries() (found []Found, aside []string, err error) {
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("ledger: %w", err)
	}
	var bad []string
	for _, f := range files {
		name := f.Name()
		if strings.HasSuffix(name, spareSuffix) {
			continue
		}
		if strings.HasSuffix(name, badSuffix) {
			bad = append(bad, name)
			continue
		}
		e, err := l.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			moved := name + badSuffix
			if os.Rename(filepath.Join(l.dir, name), filepath.Join(l.dir, moved)) == nil {
				bad = append(bad, moved)
			}
			aside = append(aside, name)
			continue
		}
		found = append(found, Found{Key: Key(name), Entry: e})
	}
	slices.Sort(bad)
	for len(bad) > mostBad {
		_ = os.RemoveAll(filepath.Join(l.dir, bad[0]))
		bad = bad[1:]
	}
	return found, aside, nil
}

// read reads one file, which must be a plain file of ours and an entry in full.
func (l *Ledger) read(name string) (Entry, error) {
	if !strings.HasSuffix(name, entrySuffix) {
		return Entry{}, fmt.Errorf("%w: name", errEntry)
	}
	f, err := os.OpenFile(filepath.Join(l.dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Entry{}, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || ok && int(owner.Uid) != os.Geteuid() {
		return Entry{}, fmt.Errorf("%w: not a file that only we could have written", errEntry)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxEntryBytes+1))
	if err != nil {
		return Entry{}, err
	}
	return parseEntry(text)
}

func formatEntry(e Entry) ([]byte, error) {
	e.Target, e.Temp = writePath(e.Target), writePath(e.Temp)
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if len(text) > maxEntryBytes {
		return nil, fmt.Errorf("%w: too long", errEntry)
	}
	return text, nil
}

func parseEntry(text []byte) (e Entry, err error) {
	if len(text) > maxEntryBytes {
		return Entry{}, fmt.Errorf("%w: too long", errEntry)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return Entry{}, fmt.Errorf("%w: %v", errEntry, err)
	}
	if e.Target, err = readPath(e.Target); err != nil {
		return Entry{}, err
	}
	if e.Temp, err = readPath(e.Temp); err != nil {
		return Entry{}, err
	}
	return e, e.check()
}

// A path that is not UTF-8 is no JSON string. It is written as base64 after a NUL,
// which no path has.
func writePath(p string) string {
	if utf8.ValidString(p) {
		return p
	}
	return "\x00" + base64.StdEncoding.EncodeToString([]byte(p))
}

func readPath(s string) (string, error) {
	coded, ok := strings.CutPrefix(s, "\x00")
	if !ok {
		return s, nil
	}
	p, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return "", fmt.Errorf("%w: path: %v", errEntry, err)
	}
	return string(p), nil
}
