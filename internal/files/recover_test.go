package files_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// scripted is a system in which something happens before or after the exchanges.
type scripted struct {
	posix.System
	n             int
	before, after map[int]func() // by the number of the exchange, from 1
}

func (s *scripted) Exchange(d1 int, n1 string, d2 int, n2 string) error {
	s.n++
	if f := s.before[s.n]; f != nil {
		f()
	}
	err := s.System.Exchange(d1, n1, d2, n2)
	if f := s.after[s.n]; f != nil {
		f()
	}
	return err
}

// theirs puts an object of somebody else at a path, by rename.
func theirs(t *testing.T, path, content string) func() {
	return func() {
		write(t, path+".other", content, 0o644)
		must(t, os.Rename(path+".other", path))
	}
}

func TestAnObjectRenamedInMeanwhileIsNeverLost(t *testing.T) {
	for name, c := range map[string]struct {
		script func(t *testing.T, path string) *scripted
		want   string // "": nothing is there
		code   wire.ErrorCode
	}{
		"before the exchange": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "1")}}
		}, "1", wire.CodePreconditionFailed},
		"before it and before it is put back": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "1"), 2: theirs(t, path, "2")}}
		}, "2", wire.CodePreconditionFailed},
		"again and again": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "1"), 2: theirs(t, path, "2"), 3: theirs(t, path, "3"), 4: theirs(t, path, "4")}}
		}, "4", wire.CodePreconditionFailed},
		"once in the middle": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "1"), 2: theirs(t, path, "2"), 4: theirs(t, path, "4")}}
		}, "2", wire.CodePreconditionFailed},
		"after the exchange": {func(t *testing.T, path string) *scripted {
			return &scripted{after: map[int]func(){1: theirs(t, path, "1")}}
		}, "1", ""},
		"a folder": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: func() { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o755)) }}}
		}, "folder", wire.CodePreconditionFailed},
		"a link": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: func() { must(t, os.Remove(path)); must(t, os.Symlink("x", path)) }}}
		}, "link", wire.CodePreconditionFailed},
		"removed before the exchange": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: func() { must(t, os.Remove(path)) }}}
		}, "", wire.CodePreconditionFailed},
		"ours removed before the other is put back": {func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "1"), 2: func() { must(t, os.Remove(path)) }}}
		}, "1", wire.CodePreconditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			for _, nameless := range []bool{true, false} {
				j := &journal{}
				dir := folder(t)
				path := dir + "/f"
				s := c.script(t, path)
				var calls posix.Calls = s
				if !nameless {
					calls = noNameless{s}
				}
				l := newLayer(t, files.Config{Calls: calls, Journal: j})
				id := mustPut(t, l, path, "old", replace).FileID
				_, err := put(l, path, "mine", guarded(files.Expect{CanonicalPath: path, FileID: id}))
				if c.code == "" {
					must(t, err)
				} else {
					wantCode(t, err, c.code)
				}
				i, err := os.Lstat(path)
				switch c.want {
				case "":
					wantNames(t, dir)
					continue
				case "folder":
					if err != nil || !i.IsDir() {
						t.Errorf("%v, %v", i, err)
					}
				case "link":
					if err != nil || i.Mode()&os.ModeSymlink == 0 {
						t.Errorf("%v, %v", i, err)
					}
				default:
					wantContent(t, path, c.want)
				}
				wantNames(t, dir, "f")
				if n := j.open(); n != 0 {
					t.Errorf("%d entries left in the journal", n)
				}
			}
		})
	}
}

type noNameless struct{ posix.Calls }

func (noNameless) OpenNameless(int, uint32) (int, error) { return -1, unix.EOPNOTSUPP }

// crash is what a process does no more after kill -9.
type crash struct{}

func die() { panic(crash{}) }

// dying does something that ends in a crash.
func dying(t *testing.T, do func()) {
	t.Helper()
	defer func() {
		if r := recover(); r != (crash{}) {
			t.Fatalf("did not crash: %v", r)
		}
	}()
	do()
}

func TestTheNextStartTidiesUpAfterACrash(t *testing.T) {
	for name, c := range map[string]struct {
		script func(t *testing.T, path string) *scripted
		later  func(t *testing.T, path string) // by others, after the crash
		want   string
		beside string
	}{
		"before the exchange": {script: func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: die}}
		}, want: "old"},
		"the expected object came out": {script: func(t *testing.T, path string) *scripted {
			return &scripted{after: map[int]func(){1: die}}
		}, want: "mine"},
		"the expected object came out, and was replaced": {script: func(t *testing.T, path string) *scripted {
			return &scripted{after: map[int]func(){1: die}}
		}, later: func(t *testing.T, path string) { theirs(t, path, "later")() }, want: "later"},
		"another object came out": {script: func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "other")}, after: map[int]func(){1: die}}
		}, want: "other"},
		"another object came out, ours is gone": {script: func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "other")}, after: map[int]func(){1: die}}
		}, later: func(t *testing.T, path string) { must(t, os.Remove(path)) }, want: "other"},
		"another object came out, a third is in place": {script: func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "other")}, after: map[int]func(){1: die}}
		}, later: func(t *testing.T, path string) { theirs(t, path, "third")() }, want: "third", beside: "other"},
		"in the middle of putting back": {script: func(t *testing.T, path string) *scripted {
			return &scripted{before: map[int]func(){1: theirs(t, path, "other")}, after: map[int]func(){2: die}}
		}, want: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, nameless := range []bool{true, false} {
				j := &journal{}
				dir := folder(t)
				path := dir + "/f"
				id := mustPut(t, newLayer(t, files.Config{}), path, "old", replace).FileID
				s := c.script(t, path)
				var calls posix.Calls = s
				if !nameless {
					calls = noNameless{s}
				}
				l := newLayer(t, files.Config{Calls: calls, Journal: j})
				dying(t, func() {
					d, err := l.Draft(path)
					must(t, err)
					_, err = d.Write([]byte("mine"))
					must(t, err)
					_, err = d.Guarded(context.Background(), files.Expect{CanonicalPath: path, FileID: id})
					t.Error(err)
				})
				if c.later != nil {
					c.later(t, path)
				}
				recovered(t, j)
				wantContent(t, path, c.want)
				if c.beside == "" {
					wantNames(t, dir, "f")
				} else {
					wantNames(t, dir, "f", "f.recovered-1")
					wantContent(t, path+".recovered-1", c.beside)
				}
				recovered(t, j) // a second time does no harm
				wantContent(t, path, c.want)
			}
		})
	}
}

// recovered does what the next start does with a journal.
func recovered(t *testing.T, j *journal) {
	t.Helper()
	l := newLayer(t, files.Config{})
	for _, e := range j.entries {
		if _, err := l.Recover(context.Background(), e); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func TestAForgedEntryHarmsNothing(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	name := ".sema-" + strings.Repeat("0a", 16) + ".tmp"
	temp := dir + "/" + name
	r := mustPut(t, l, dir+"/f", "precious", replace)
	mustPut(t, l, dir+"/g", "precious", replace)
	must(t, os.Symlink(dir, dir+"/link"))
	must(t, os.Mkdir(temp, 0o755))
	for _, e := range []files.Entry{
		{},
		{Target: dir + "/g", Temp: "f", Ours: r.FileID},
		{Target: dir + "/g", Temp: "f"},
		{Target: dir + "/g", Temp: name},
		{Target: dir + "/g", Temp: "../" + name},
		{Target: "g", Temp: name},
		{Target: "/", Temp: name},
		{Target: dir + "/link/g", Temp: name},
		{Target: dir + "/missing/g", Temp: name, Ours: "1.2"},
		{Target: dir + "/f/g", Temp: name, Ours: "1.2"},
	} {
		if did, err := l.Recover(context.Background(), e); did != "" || err != nil {
			t.Errorf("%+v: %q, %v", e, did, err)
		}
	}
	wantContent(t, dir+"/f", "precious")
	wantContent(t, dir+"/g", "precious")
	if i, err := os.Stat(temp); err != nil || !i.IsDir() {
		t.Errorf("a folder that is not ours: %v", err)
	}
}

func init() { parts["writer"] = writer }

// written is the content of one write: one letter, so that a mix shows.
func written(i int, size int) []byte { return slices.Repeat([]byte{byte('a' + i%26)}, size) }

// writer writes to one path without an end, keeping its journal in a folder.
func writer() {
	dir, store, size := os.Args[1], os.Args[2], 0
	fmt.Sscan(os.Args[3], &size)
	l, err := files.New(files.Config{Journal: inFolder(store)})
	if err != nil {
		panic(err)
	}
	steps := []step{replace, guarded(files.Expect{CanonicalPath: dir + "/f"}), appendTo}
	fmt.Println("ready")
	for i := 0; ; i++ {
		s := steps[i%len(steps)]
		if i%len(steps) == 2 {
			if _, err := put(l, dir+"/log", "line\n", s); err != nil {
				panic(err)
			}
			continue
		}
		if _, err := put(l, dir+"/f", string(written(i, size)), s); err != nil {
			panic(err)
		}
	}
}

// A stage is above folders that are missing; when the step comes, someone else has
// made them and put a file there.
func TestTwoClaimsOnALongNameAreBothKept(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	name := strings.Repeat("é", 127)
	temp := ".sema-" + strings.Repeat("0", 32) + ".tmp"
	write(t, dir+"/"+name, "in place", 0o644)
	write(t, dir+"/"+temp, "caught", 0o644)
	did, err := l.Recover(context.Background(), files.Entry{Target: dir + "/" + name, Temp: temp, Ours: "1.1"})
	must(t, err)
	beside := strings.Repeat("é", 121) + ".recovered-1"
	if !strings.Contains(did, beside) {
		t.Error(did)
	}
	wantContent(t, dir+"/"+name, "in place")
	wantContent(t, dir+"/"+beside, "caught")
}

func TestAFolderThatCameToBeMeanwhile(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			l, dir := newLayer(t, files.Config{Calls: calls, Journal: j}), folder(t)
			for i, s := range []step{replace, guarded(files.Expect{CanonicalPath: dir + "/1/b/f"}), appendTo} {
				if calls, ok := calls.(without); ok && calls.exchange && i == 1 {
					continue
				}
				path := fmt.Sprintf("%s/%d/b/f", dir, i)
				d, err := l.Draft(path)
				must(t, err)
				_, err = d.Write([]byte("mine"))
				must(t, err)
				must(t, os.MkdirAll(path[:len(path)-2], 0o755))
				write(t, path, "old", 0o640)
				_, err = s(context.Background(), d)
				must(t, err)
				d.Discard()
				want := "mine"
				if i == 2 {
					want = "oldmine"
				}
				wantContent(t, path, want)
				wantNames(t, path[:len(path)-2], "f")
				if st, err := os.Stat(path); err != nil || st.Mode() != 0o640 {
					t.Errorf("%v, %v", st.Mode(), err)
				}
				must(t, os.RemoveAll(fmt.Sprintf("%s/%d", dir, i)))
			}
			wantNames(t, dir)
			if n := j.open(); n != 0 {
				t.Errorf("%d entries left in the journal", n)
			}
		})
	}
}

// broken is a system whose disk fails from one exchange on.
type broken struct {
	*scripted
	from int
}

func (b broken) Exchange(d1 int, n1 string, d2 int, n2 string) error {
	if b.n+1 >= b.from {
		b.n++
		return unix.EIO
	}
	return b.scripted.Exchange(d1, n1, d2, n2)
}

func TestAnExchangeThatCannotBeUndoneIsSaidAndKeptForTheNextStart(t *testing.T) {
	j := &journal{}
	dir := folder(t)
	path := dir + "/f"
	l := newLayer(t, files.Config{Journal: j, Calls: broken{&scripted{before: map[int]func(){1: theirs(t, path, "other")}}, 2}})
	id := mustPut(t, l, path, "old", replace).FileID
	_, err := put(l, path, "mine", guarded(files.Expect{CanonicalPath: path, FileID: id}))
	wantCode(t, err, wire.CodeOutcomeUnknown)
	if j.open() != 1 {
		t.Fatalf("%d entries in the journal, want the one", j.open())
	}
	recovered(t, j)
	wantContent(t, path, "other")
	wantNames(t, dir, "f")
}
