package place

import (
	"context"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

const (
	// copyLimit is the largest file, in bytes, of which Append makes a copy where
	// the file system cannot share the content between two files.
	copyLimit = 64 << 20
	// appendRounds is how often Append starts over with a file that changes under
	// its hands before it takes it as one that another process is writing to.
	appendRounds = 8
	// oneWrite is the most bytes that one write call takes on Linux.
	oneWrite = math.MaxInt32 &^ 0xfff
)

// Append puts the content at the end of the regular file at a name, or makes a
// file of it where nothing is. The stage itself is not placed.
//
// A reader sees all of the content or none of it: the old content and the new go
// into one file that then takes the old one's place. That would lose what a
// process with the old file open writes to it later. So where someone has it open
// for writing, or that cannot be told, or the file is above copyLimit and cannot
// be shared, or the file system cannot exchange, or file or folder are append-only, the content goes out in a single
// write to the end of the file, with the space reserved before it; a write that
// stops half way is cut off again.
func (s *Stage) Append(ctx context.Context, dir *posix.Dir, name string) error {
	done, err := s.exclusively(ctx, dir)
	if err != nil {
		return err
	}
	defer done()
	for round := 1; ; round++ {
		err := s.appendOnce(dir, name, round > appendRounds)
		switch {
		case errors.Is(err, errAgain):
		case errors.Is(err, ErrLink):
			return err
		default:
			return posix.Wrap("append", dir.Join(name), err)
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
	}
}

func (s *Stage) appendOnce(dir *posix.Dir, name string, direct bool) error {
	old, err := s.p.look(dir, name)
	if err != nil {
		return err
	}
	if old == nil {
		return s.appendNew(dir, name)
	}
	defer old.Close()
	if err := replaceable(old, dir, name); err != nil {
		return err
	}
	if now, err := posix.StatFd(s.own.FD); err != nil || now.Size == 0 {
		return err // nothing to append
	}
	reader, err := old.Open(s.p.calls, unix.O_RDONLY)
	if err != nil {
		direct = true // a file that can be written but not read
	} else {
		defer unix.Close(reader)
	}
	if direct || s.onlyGrows(dir, old) || s.p.inUse(reader) {
		return s.appendDirect(old, dir.Join(name))
	}
	switch err := s.appendCopy(dir, name, old, reader); {
	case errors.Is(err, errTooLarge), posix.CodeOf(err) == wire.CodeNotSupported:
		return s.appendDirect(old, dir.Join(name))
	default:
		return err
	}
}

// onlyGrows reports whether neither the file nor its name can be replaced.
func (s *Stage) onlyGrows(dir *posix.Dir, old *posix.Object) bool {
	folder, err := posix.StatFd(dir.FD)
	return old.AppendOnly || err == nil && folder.AppendOnly
}

// inUse reports whether a process may write to the file later. What cannot be told
// is taken for yes.
func (p *Placer) inUse(reader int) bool {
	held, err := p.calls.WrittenElsewhere(reader)
	return held || err != nil
}

func (s *Stage) appendNew(dir *posix.Dir, name string) error {
	whole, err := s.p.Stage(dir, s.target, false)
	if err != nil {
		return err
	}
	defer whole.Discard()
	if err := s.copyInto(whole); err != nil {
		return err
	}
	if err := whole.Seal(); err != nil {
		return err
	}
	_, err = whole.create(dir, name)
	if errors.Is(err, unix.EEXIST) {
		return errAgain
	}
	if posix.Missing(err) {
		_, err = whole.rename(dir, name)
	}
	return err
}

// errTooLarge says that a file is not copied for an append.
var errTooLarge = errors.New("too large to be copied")

func (s *Stage) appendCopy(dir *posix.Dir, name string, old *posix.Object, reader int) error {
	whole, err := s.p.Stage(dir, s.target, true)
	if err != nil {
		return err
	}
	defer whole.Discard()
	before, err := posix.StatFd(reader)
	if err != nil {
		return err
	}
	if err := s.p.calls.Clone(whole.writer, reader); err == nil {
		if _, err := unix.Seek(whole.writer, 0, unix.SEEK_END); err != nil {
			return err
		}
	} else if before.Size > copyLimit {
		return errTooLarge
	} else if err := s.p.copyAll(whole.writer, reader); err != nil {
		return err
	}
	if err := s.copyInto(whole); err != nil {
		return err
	}
	// What came out must be the object copied, nobody may have it open for writing
	// any more, and it must be as it was then. In this order: who had it open may have
	// written before leaving.
	ours, err := whole.exchange(dir, name, old, "", func(out *posix.Object) bool {
		if s.p.inUse(reader) {
			return false
		}
		now, err := posix.StatFd(reader)
		return err == nil && out.Same(now) && now.Unchanged(before)
	})
	if err != nil {
		return err
	}
	if !ours {
		return errAgain
	}
	return nil
}

// copyInto adds the stage's content to another stage.
func (s *Stage) copyInto(to *Stage) error {
	if _, err := unix.Seek(s.writer, 0, unix.SEEK_SET); err != nil {
		return err
	}
	return s.p.copyAll(to.writer, s.writer)
}

// copyAll copies from src's offset to its end.
func (p *Placer) copyAll(dst, src int) error {
	for {
		n, err := p.calls.Copy(dst, src, 1<<30)
		if err != nil || n == 0 {
			break // the plain way finds the end, or the error, for itself
		}
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := p.calls.Read(src, buf)
		if err != nil || n == 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			m, err := posix.Write(dst, b)
			if err != nil {
				return err
			}
			b = b[m:]
		}
	}
}

func (s *Stage) appendDirect(old *posix.Object, path string) error {
	st, err := posix.StatFd(s.own.FD)
	if err != nil {
		return err
	}
	if st.Size > oneWrite {
		return posix.Refuse(wire.CodeNotSupported, "append", path,
			"%d bytes are more than one write takes, and this file cannot be replaced by a longer copy", st.Size)
	}
	fd, err := old.Open(s.p.calls, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := posix.StatFd(fd)
	if err != nil {
		return err
	}
	if err := s.p.calls.Reserve(fd, now.Size, st.Size); err != nil && !posix.Missing(err) {
		return err
	}
	content, err := unix.Mmap(s.writer, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(content)
	n, err := posix.Write(fd, content)
	if n == len(content) {
		// The bytes are in the file and others may have read them: a disk that fails
		// to take them now is not a failed append.
		_ = posix.Sync(fd)
		return nil
	}
	if n > 0 {
		if cut := s.cutBack(fd, int64(n)); cut != nil {
			return posix.Refuse(wire.CodeOutcomeUnknown, "append", path,
				"only %d of %d bytes were written (%v) and could not be cut off again: %w", n, len(content), err, cut)
		}
	}
	if err == nil {
		err = unix.ENOSPC // the one reason for a short write to a regular file
	}
	return err
}

// cutBack removes the last n bytes, which this descriptor has written, unless
// someone has written behind them.
func (s *Stage) cutBack(fd int, n int64) error {
	end, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		return err
	}
	st, err := posix.StatFd(fd)
	if err != nil {
		return err
	}
	if st.Size != end {
		return errors.New("another process has written behind them")
	}
	return posix.Truncate(fd, end-n)
}
