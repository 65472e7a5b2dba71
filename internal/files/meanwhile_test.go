package files_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

func TestAnExchangeWaitsForTheLockOfAnotherExecutor(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	theirs, err := os.Open(dir)
	must(t, err)
	defer theirs.Close()
	must(t, syscall.Flock(int(theirs.Fd()), syscall.LOCK_EX))
	for name, s := range map[string]step{"append": appendTo, "guarded": guarded(files.Expect{CanonicalPath: dir + "/f"})} {
		why := errors.New("out of time")
		ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, why)
		d, err := l.Draft(dir + "/f")
		must(t, err)
		_, err = d.Write([]byte("new"))
		must(t, err)
		if _, err := s(ctx, d); err != why {
			t.Errorf("%s: %v, want the context's cause", name, err)
		}
		d.Discard()
		cancel()
	}
	wantContent(t, dir+"/f", "old")
	must(t, theirs.Close())
	mustPut(t, l, dir+"/f", "new", guarded(files.Expect{CanonicalPath: dir + "/f"}))
	wantContent(t, dir+"/f", "new")
	wantNames(t, dir, "f")
}

// locking is a system that tells when a folder is opened to be locked.
type locking struct {
	posix.System
	told func()
}

func (l locking) Open(dir int, name string, flags int, mode uint32) (int, error) {
	fd, err := l.System.Open(dir, name, flags, mode)
	if flags&(unix.O_ACCMODE|posix.Folder) == unix.O_DIRECTORY {
		l.told()
	}
	return fd, err
}

func TestALockOnAFolderHoldsUpExchangesOnly(t *testing.T) {
	asked := make(chan struct{})
	l, dir := newLayer(t, files.Config{Calls: locking{told: sync.OnceFunc(func() { close(asked) })}}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	theirs, err := os.Open(dir)
	must(t, err)
	defer theirs.Close()
	must(t, syscall.Flock(int(theirs.Fd()), syscall.LOCK_EX))
	draft := func(path string) *files.Draft {
		d, err := l.Draft(dir + path)
		must(t, err)
		_, err = d.Write([]byte("new"))
		must(t, err)
		return d
	}
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan error)
	held := draft("/f")
	defer held.Discard()
	go func() { waiting <- held.Append(ctx) }()
	<-asked
	limit, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	for path, s := range map[string]step{"/f": replace, "/g": create} {
		d := draft(path)
		_, err := s(limit, d)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		d.Discard()
	}
	cancel()
	if err := <-waiting; err != context.Canceled {
		t.Errorf("the append: %v", err)
	}
	wantContent(t, dir+"/f", "new")
	wantNames(t, dir, "f", "g")
}

// Content that comes for a file of its owner alone is not open to others on its
// way; if the file is gone when it lands, it is a new file like any other.
func TestAFileThatIsGoneWhenItsContentLandsIsANewOne(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			l, dir := newLayer(t, files.Config{Calls: calls, Journal: j}), folder(t)
			f, err := os.OpenFile(dir+"/like", os.O_CREATE, 0o666)
			must(t, err)
			must(t, f.Close())
			like, err := os.Stat(dir + "/like")
			must(t, err)
			for face, s := range map[string]step{"replace": replace, "guarded": guarded(files.Expect{CanonicalPath: dir + "/f"})} {
				write(t, dir+"/f", "old", 0o600)
				d, err := l.Draft(dir + "/f")
				must(t, err)
				_, err = d.Write([]byte("new"))
				must(t, err)
				must(t, d.Flush())
				must(t, os.Remove(dir+"/f"))
				r, err := s(context.Background(), d)
				must(t, err)
				d.Discard()
				wantContent(t, dir+"/f", "new")
				if got, err := os.Stat(dir + "/f"); err != nil || got.Mode() != like.Mode() || r.Created != nil && !*r.Created {
					t.Errorf("%s: %v, %v, %+v; want the mode %v", face, got.Mode(), err, r, like.Mode())
				}
				must(t, os.Remove(dir+"/f"))
			}
			wantNames(t, dir, "like")
			if n := j.open(); n != 0 {
				t.Errorf("%d entries left in the journal", n)
			}
		})
	}
}

// vanishing is a system on which a folder made for a write is removed once, by
// another write that failed, before the content gets its name.
type vanishing struct {
	without
	folder string
	once   *sync.Once
}

func (v vanishing) vanish() { v.once.Do(func() { os.Remove(v.folder) }) }

func (v vanishing) Link(fd, dir int, name string) error {
	v.vanish()
	return v.without.Link(fd, dir, name)
}

func (v vanishing) Rename(d1 int, n1 string, d2 int, n2 string) error {
	v.vanish()
	return v.without.Rename(d1, n1, d2, n2)
}

func (v vanishing) RenameNew(d1 int, n1 string, d2 int, n2 string) error {
	v.vanish()
	return v.without.RenameNew(d1, n1, d2, n2)
}

func TestAFolderThatVanishesMeanwhileIsMadeAgain(t *testing.T) {
	for name, poor := range map[string]without{"all calls": {}, "no nameless files": {nameless: true}, "no renameat2, no rest": {nameless: true, exchange: true, renameNew: true, copies: true, ask: true}} {
		for face, s := range map[string]step{"replace": replace, "create": create, "append": appendTo} {
			t.Run(name+", "+face, func(t *testing.T) {
				dir := folder(t)
				l := newLayer(t, files.Config{Calls: vanishing{poor, dir + "/a", &sync.Once{}}})
				mustPut(t, l, dir+"/a/f", "new", s)
				wantContent(t, dir+"/a/f", "new")
				wantNames(t, dir, "a")
				wantNames(t, dir+"/a", "f")
			})
		}
	}
}

// unwritable is a journal whose folder somebody removed.
type unwritable struct{}

func (unwritable) Record(files.Entry) (func(), error) {
	return nil, &os.PathError{Op: "open", Path: "ledger", Err: unix.ENOENT}
}

func TestAJournalThatCannotBeWrittenIsNotTakenForAMissingTarget(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			l, dir := newLayer(t, files.Config{Calls: calls, Journal: unwritable{}}), folder(t)
			write(t, dir+"/f", "old", 0o644)
			_, err := put(l, dir+"/f", "new", replace)
			wantCode(t, err, wire.CodeUnknown)
			if err != nil && !strings.Contains(err.Error(), "ledger") {
				t.Error(err)
			}
			wantContent(t, dir+"/f", "old")
			wantNames(t, dir, "f")
		})
	}
}

func TestAFailedStepTakesItsFoldersBack(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	d, err := l.Draft(dir + "/a/b/" + strings.Repeat("n", 256))
	if err == nil {
		defer d.Discard()
		_, err = d.Replace(context.Background())
	}
	wantCode(t, err, wire.CodeInvalid)
	wantNames(t, dir)
}
