package place

import (
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Stage is content on its way to its place. It belongs to one goroutine. After
// any of the faces, or instead of one, Discard must be called; it does nothing to
// what has been placed.
type Stage struct {
	p       *Placer
	home    *posix.Dir    // where it is staged; borrowed
	target  string        // real path, for the journal
	private bool          // not made as a new file is
	writer  int           // -1 once sealed
	reader  int           // for the question who has it open; -1 once sealed, or if it cannot be had
	own     *posix.Object // handle of our object
	name    string        // its temporary name; "": none
	named   *posix.Dir    // the folder of that name; our own handle
	entry   Entry         // in the journal
	forget  func()        // takes the entry back; nil: there is none
}

// Stage opens a stage in a folder for a target that is there or below it. The
// folder stays the caller's, and must stay open until Discard. A private stage
// is readable for its owner only, whatever the umask says: content that will
// replace a file is no more open than that file was.
func (p *Placer) Stage(home *posix.Dir, target string, private bool) (*Stage, error) {
	s := &Stage{p: p, home: home, target: target, writer: -1, reader: -1}
	s.private = private
	mode := uint32(0o666)
	if private {
		mode = 0o600
	}
	fd, err := p.calls.OpenNameless(home.FD, mode)
	if err != nil || fault.On("files: a temporary file stays") {
		fd, err = s.openNamed(mode)
	}
	if err != nil {
		s.Discard()
		return nil, notTaken(home, err)
	}
	s.writer = fd
	if err := s.holdOwn(); err != nil {
		s.Discard()
		return nil, posix.Wrap("write in the folder", home.Path, err)
	}
	return s, nil
}

// notTaken is the error for a folder that takes no file. A folder that is there is
// not what is missing: in such as /proc only the kernel makes files.
func notTaken(home *posix.Dir, err error) error {
	const op = "write in the folder"
	if os.IsNotExist(err) {
		if _, gone := posix.RealPath(home.FD); gone == nil {
			return posix.Refuse(wire.CodePermissionDenied, op, home.Path, "its file system takes no new files (%w)", err)
		}
	}
	return posix.Wrap(op, home.Path, err)
}

func (s *Stage) openNamed(mode uint32) (int, error) {
	if err := s.takeName(s.home, ""); err != nil {
		return -1, err
	}
	fd, err := s.p.calls.Open(s.home.FD, s.name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW, mode)
	if err != nil {
		s.dropName()
	}
	return fd, err
}

func (s *Stage) holdOwn() error {
	fd, err := posix.Reopen(s.p.calls, s.writer, posix.Handle)
	if err != nil {
		return err
	}
	st, err := posix.StatFd(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	s.own = &posix.Object{FD: fd, Stat: st}
	// Now, because the mode may forbid it later. Under a strange umask it does
	// already, and then the question is not asked.
	if r, err := posix.Reopen(s.p.calls, s.writer, unix.O_RDONLY); err == nil {
		s.reader = r
	}
	return nil
}

// takeName draws a temporary name in a folder and records it. The name is not
// there yet. In a folder that lets go of no name there is none.
func (s *Stage) takeName(dir *posix.Dir, expected string) error {
	if st, err := posix.StatFd(dir.FD); err != nil || st.AppendOnly {
		if err == nil {
			err = posix.Refuse(wire.CodePermissionDenied, "write in the folder", dir.Path, "names can only be added to it, so nothing in it is replaced (%w)", unix.EPERM)
		}
		return err
	}
	name, err := s.p.tempName()
	if err != nil {
		return err
	}
	own, err := dir.Dup()
	if err != nil {
		return err
	}
	if err := s.record(dir, name, expected); err != nil {
		own.Close()
		return err
	}
	s.name, s.named = name, own
	return nil
}

// record puts an entry for the temporary name into the journal, in place of the
// one that is there. The temporary name is always said to be beside its target; a
// stage above folders that are not made yet is beside where the target would be.
func (s *Stage) record(dir *posix.Dir, temp, expected string) error {
	e := Entry{Target: dir.Join(path.Base(s.target)), Temp: temp, Expected: expected}
	if s.own != nil {
		e.Ours = s.own.FileID(s.p.calls)
	}
	if s.forget != nil && e == s.entry {
		return nil
	}
	forget, err := s.p.journal.Record(e)
	if err != nil {
		// Whatever is wrong with the journal, it is not wrong with the target.
		return posix.Refuse(wire.CodeUnknown, "write", e.Target, "its temporary file could not be recorded: %w", err)
	}
	if s.forget != nil {
		s.forget()
	}
	s.entry, s.forget = e, forget
	return nil
}

// dropName says that the temporary name is not there any more.
func (s *Stage) dropName() {
	if s.named != nil {
		s.named.Close()
	}
	s.name, s.named = "", nil
	if s.forget != nil {
		s.forget()
		s.forget = nil
	}
}

// Write adds content.
func (s *Stage) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := posix.Write(s.writer, b[n:])
		if err != nil {
			return n, posix.Wrap("write", s.target, err)
		}
		n += m
	}
	return n, nil
}

// Seal flushes the content to the disk and ends writing. After it no process has
// the file open for writing, so that it can be run the moment it has its name.
func (s *Stage) Seal() error {
	if s.writer < 0 {
		return nil
	}
	if err := posix.Sync(s.writer); err != nil {
		return posix.Wrap("flush", s.target, err)
	}
	err := posix.Close(s.writer)
	s.writer = -1
	s.awaitForks()
	return posix.Wrap("write", s.target, err)
}

// A process on its way from fork to exec holds a copy of every descriptor.
const (
	forkPoll     = 50 * time.Microsecond
	forkPatience = 250 * time.Millisecond
)

// awaitForks waits until no process that was forked before the writer was closed
// holds a copy of it. The forking side holds this lock until the child leaves our
// memory, which on Linux is an instant before its copies are closed; who still
// has the file open is then asked for.
func (s *Stage) awaitForks() {
	syscall.ForkLock.RLock()
	//lint:ignore SA2001 waiting for the forks under way is all that is wanted
	syscall.ForkLock.RUnlock()
	if s.reader < 0 {
		return
	}
	for give := time.Now().Add(forkPatience); time.Now().Before(give); time.Sleep(forkPoll) {
		if held, err := s.p.calls.WrittenElsewhere(s.reader); !held || err != nil {
			break
		}
	}
	unix.Close(s.reader)
	s.reader = -1
}

// Discard removes what the stage still has. Placed content stays.
func (s *Stage) Discard() {
	if s.writer >= 0 {
		unix.Close(s.writer)
		s.writer = -1
	}
	if s.reader >= 0 {
		unix.Close(s.reader)
		s.reader = -1
	}
	if s.name != "" && !fault.On("files: a temporary file stays") {
		if err := posix.Unlink(s.named.FD, s.name); err != nil && !os.IsNotExist(err) {
			s.forget = nil // it stays in the journal for the next start
		}
		s.dropName()
	}
	if s.own != nil {
		s.own.Close()
		s.own = nil
	}
}

// receipt is for content that is now at a name.
func (s *Stage) receipt(dir *posix.Dir, name string, created *bool) Receipt {
	return Receipt{Path: dir.Join(name), FileID: s.own.FileID(s.p.calls), Created: created}
}

// look holds what is at a name; nil if nothing is.
func (p *Placer) look(dir *posix.Dir, name string) (*posix.Object, error) {
	o, err := posix.Hold(p.calls, dir.FD, name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return o, err
}
