package files_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

func TestReplaceSaysWhatItDid(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/a/b/f"
	first := mustPut(t, l, path, "one", replace)
	if first.Path != path || !*first.Created || !strings.HasPrefix(first.FileID, fmt.Sprint(inode(t, path), ".")) {
		t.Errorf("first receipt %+v", first)
	}
	second := mustPut(t, l, path, "two", replace)
	if second.Path != path || *second.Created || second.FileID == first.FileID {
		t.Errorf("second receipt %+v after %+v", second, first)
	}
	wantContent(t, path, "two")
	wantNames(t, dir+"/a/b", "f")
}

func TestFileIDsDoNotComeBack(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	seen := map[string]bool{}
	for i := range 200 {
		r := mustPut(t, l, dir+"/f", fmt.Sprint(i), replace)
		if seen[r.FileID] {
			t.Fatalf("%s twice", r.FileID)
		}
		seen[r.FileID] = true
	}
}

func TestNamesOfEveryKind(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	for _, name := range []string{"with space", `quote"'`, "new\nline", "caf\u00e9", "cafe\u0301", "tab\t", "-rf", "*?[", "日本", strings.Repeat("n", 255), ".sema-x.tmp"} {
		path := dir + "/" + name
		r := mustPut(t, l, path, name, replace)
		if r.Path != path {
			t.Errorf("%q was written as %q", path, r.Path)
		}
		wantContent(t, path, name)
		if i, err := l.Info(path); err != nil || i.Path != path || i.Size != int64(len(name)) {
			t.Errorf("%q: %+v, %v", path, i, err)
		}
	}
	list, err := l.List(context.Background(), dir)
	if err != nil || len(list) != 11 {
		t.Errorf("%d entries, %v", len(list), err)
	}
}

func TestReadersNeverSeeTheTargetMissingEmptyOrMixed(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	path := dir + "/f"
	content := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 20_000) }
	mustPut(t, l, path, content(0), replace)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				b, err := os.ReadFile(path)
				if err != nil || len(b) != 20_000 || strings.Count(string(b), string(b[:1])) != len(b) {
					t.Errorf("a reader saw %d bytes, %v", len(b), err)
					return
				}
			}
		})
	}
	for i := range 2000 {
		if _, err := put(l, path, content(i), replace); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	readers.Wait()
	wantNames(t, dir, "f")
}

func TestOneOfTwentyExclusiveWritersWins(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	for round := range long(100, 500) {
		path := fmt.Sprintf("%s/%d", dir, round)
		results := race(20, func(i int) (files.Receipt, error) {
			return put(l, path, strings.Repeat(fmt.Sprint(i%10), 5000), create)
		})
		won := -1
		for i, err := range results {
			switch {
			case err == nil && won >= 0:
				t.Fatalf("%d and %d both won", won, i)
			case err == nil:
				won = i
			default:
				wantCode(t, err, wire.CodeAlreadyExists)
			}
		}
		if won < 0 {
			t.Fatal("nobody won")
		}
		wantContent(t, path, strings.Repeat(fmt.Sprint(won%10), 5000))
		must(t, os.Remove(path))
	}
	wantNames(t, dir)
}

// race lets n goroutines do the same at once.
func race(n int, do func(i int) (files.Receipt, error)) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			_, errs[i] = do(i)
		})
	}
	close(start)
	all.Wait()
	return errs
}

func TestExclusiveRefusesWhateverIsThere(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.Symlink("nowhere", dir+"/dangling"))
	must(t, os.Mkdir(dir+"/folder", 0o755))
	write(t, dir+"/file", "old", 0o644)
	for _, name := range []string{"dangling", "folder", "file"} {
		_, err := put(l, dir+"/"+name, "new", create)
		wantCode(t, err, wire.CodeAlreadyExists)
	}
	wantContent(t, dir+"/file", "old")
	wantNames(t, dir, "dangling", "file", "folder")
}

func TestADraftForANewFileIsRefusedAtOnceIfOneIsThere(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.Symlink("nowhere", dir+"/dangling"))
	must(t, os.Symlink("loop", dir+"/loop"))
	must(t, os.Symlink("/proc/version", dir+"/unwritable"))
	must(t, os.Mkdir(dir+"/folder", 0o755))
	for _, p := range []string{dir + "/dangling", dir + "/loop", dir + "/unwritable", dir + "/folder", dir + "/folder/", "/", "/dev/null"} {
		_, err := l.DraftNew(p)
		wantCode(t, err, wire.CodeAlreadyExists)
	}
	d, err := l.DraftNew(dir + "/a/new")
	must(t, err)
	defer d.Discard()
	r, err := d.Create(context.Background())
	must(t, err)
	if r.Path != dir+"/a/new" || !*r.Created {
		t.Errorf("%+v", r)
	}
}

func TestWritesGoThroughLinks(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.MkdirAll(dir+"/real/sub", 0o755))
	write(t, dir+"/real/f", "old", 0o644)
	must(t, os.Symlink(dir+"/real/f", dir+"/absolute"))
	must(t, os.Symlink("real/f", dir+"/relative"))
	must(t, os.Symlink("relative", dir+"/chained"))
	must(t, os.Symlink("real/../real/sub/../f", dir+"/dotted"))
	must(t, os.Symlink("real/new", dir+"/dangling"))
	must(t, os.Symlink("no/../new", dir+"/senseless"))
	must(t, os.Symlink("loop2", dir+"/loop1"))
	must(t, os.Symlink("loop1", dir+"/loop2"))
	must(t, os.Symlink("real", dir+"/folder"))
	for _, name := range []string{"absolute", "relative", "chained", "dotted", "folder/f"} {
		r := mustPut(t, l, dir+"/"+name, name, replace)
		if r.Path != dir+"/real/f" || *r.Created {
			t.Errorf("%s: %+v", name, r)
		}
		wantContent(t, dir+"/real/f", name)
	}
	if r := mustPut(t, l, dir+"/dangling", "made", replace); r.Path != dir+"/real/new" || !*r.Created {
		t.Errorf("dangling: %+v", r)
	}
	_, err := put(l, dir+"/senseless", "x", replace)
	wantCode(t, err, wire.CodeNotFound)
	_, err = put(l, dir+"/loop1", "x", replace)
	wantCode(t, err, wire.CodeInvalid)
	if !strings.Contains(err.Error(), "symbolic links") {
		t.Errorf("a loop is told so: %v", err)
	}
	_, err = put(l, dir+"/folder", "x", replace)
	wantCode(t, err, wire.CodeIsDirectory)
	for _, name := range []string{"absolute", "relative", "chained", "dotted", "dangling", "loop1", "folder"} {
		if i, err := os.Lstat(dir + "/" + name); err != nil || i.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more (%v)", name, err)
		}
	}
	wantNames(t, dir+"/real", "f", "new", "sub")
}

func TestAHardLinkKeepsTheOldContent(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	must(t, os.Link(dir+"/f", dir+"/other"))
	mustPut(t, l, dir+"/f", "new", replace)
	wantContent(t, dir+"/f", "new")
	wantContent(t, dir+"/other", "old")
}

func TestAFolderInPlaceOfTheTargetStays(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, os.MkdirAll(dir+"/f/in", 0o755))
	before := inode(t, dir+"/f")
	for name, s := range map[string]step{
		"replace": replace, "append": appendTo, "guarded": guarded(files.Expect{CanonicalPath: dir + "/f"}),
		"guarded, with an id": guarded(files.Expect{CanonicalPath: dir + "/f", FileID: fmt.Sprint(before)}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := put(l, dir+"/f", "new", s)
			wantCode(t, err, wire.CodeIsDirectory)
			if inode(t, dir+"/f") != before {
				t.Error("the folder was swapped out")
			}
			wantNames(t, dir, "f")
		})
	}
}

func TestWhatIsNoRegularFileIsNotReplaced(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	must(t, mkfifo(dir+"/fifo"))
	for _, path := range []string{dir + "/fifo", "/dev/null"} {
		for _, s := range []step{replace, appendTo, guarded(files.Expect{CanonicalPath: path})} {
			_, err := put(l, path, "x", s)
			if path == "/dev/null" && os.Getuid() != 0 {
				wantCode(t, err, wire.CodePermissionDenied) // no file can be made in /dev
				continue
			}
			wantCode(t, err, wire.CodeInvalid)
		}
	}
	if i, err := os.Stat("/dev/null"); err != nil || i.Mode()&os.ModeDevice == 0 {
		t.Errorf("/dev/null: %v, %v", i.Mode(), err)
	}
}

func TestADiscardedDraftLeavesNothing(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			l, dir := newLayer(t, files.Config{Calls: calls, Journal: j}), folder(t)
			for _, path := range []string{dir + "/new", dir + "/a/b/new"} {
				d, err := l.Draft(path)
				must(t, err)
				_, err = d.Write([]byte("half"))
				must(t, err)
				d.Discard()
			}
			wantNames(t, dir)
			if n := j.open(); n != 0 {
				t.Errorf("%d entries left in the journal", n)
			}
		})
	}
}

func TestAStepAfterTheContextEndedDoesNothing(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	why := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	for name, s := range map[string]step{"replace": replace, "create": create, "append": appendTo, "guarded": guarded(files.Expect{CanonicalPath: dir + "/f"})} {
		d, err := l.Draft(dir + "/f")
		must(t, err)
		if _, err := s(ctx, d); err != why {
			t.Errorf("%s: %v, want the context's cause", name, err)
		}
		d.Discard()
	}
	wantContent(t, dir+"/f", "old")
	wantNames(t, dir, "f")
}

func TestAReadOnlyFileIsNotReplaced(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write every file")
	}
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o444)
	for _, s := range []step{replace, appendTo, guarded(files.Expect{CanonicalPath: dir + "/f"})} {
		_, err := put(l, dir+"/f", "new", s)
		wantCode(t, err, wire.CodePermissionDenied)
	}
	wantContent(t, dir+"/f", "old")
}

func TestAFolderThatCannotBeWrittenIsSaid(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write every folder")
	}
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	must(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o755)
	_, err := put(l, dir+"/f", "new", replace)
	wantCode(t, err, wire.CodePermissionDenied)
	wantContent(t, dir+"/f", "old")
}

func TestPathsThatAreNoneAreInvalid(t *testing.T) {
	l := newLayer(t, files.Config{})
	for _, p := range []string{"", "a", "./a", "/a/../b", "/a/./b", "/..", "/a\x00b", "~/a"} {
		_, err := put(l, p, "x", replace)
		wantCode(t, err, wire.CodeInvalid)
		_, err = l.Info(p)
		wantCode(t, err, wire.CodeInvalid)
		_, err = l.Exists(p)
		wantCode(t, err, wire.CodeInvalid)
		_, err = l.Canonical(p)
		wantCode(t, err, wire.CodeInvalid)
		_, err = l.Readlink(p)
		wantCode(t, err, wire.CodeInvalid)
		_, err = l.Open(p)
		wantCode(t, err, wire.CodeInvalid)
		_, err = l.List(context.Background(), p)
		wantCode(t, err, wire.CodeInvalid)
		wantCode(t, l.MakeDir(p, true), wire.CodeInvalid)
		wantCode(t, l.Remove(context.Background(), p, true), wire.CodeInvalid)
	}
}

func TestAWriteWithoutTheseCallsStillLandsWhole(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			l, dir := newLayer(t, files.Config{Calls: calls, Journal: j}), folder(t)
			mustPut(t, l, dir+"/f", "one", replace)
			mustPut(t, l, dir+"/f", "two", replace)
			wantContent(t, dir+"/f", "two")
			mustPut(t, l, dir+"/f", ", three", appendTo)
			wantContent(t, dir+"/f", "two, three")
			mustPut(t, l, dir+"/g", "made", appendTo)
			wantContent(t, dir+"/g", "made")
			mustPut(t, l, dir+"/x/e", "exclusive", create)
			_, err := put(l, dir+"/x/e", "again", create)
			wantCode(t, err, wire.CodeAlreadyExists)
			wantContent(t, dir+"/x/e", "exclusive")
			_, err = put(l, dir+"/f", "guarded", guarded(files.Expect{CanonicalPath: dir + "/f"}))
			if calls, ok := calls.(without); ok && calls.exchange {
				wantCode(t, err, wire.CodeNotSupported)
				wantContent(t, dir+"/f", "two, three")
			} else {
				must(t, err)
				wantContent(t, dir+"/f", "guarded")
			}
			wantNames(t, dir, "f", "g", "x")
			wantNames(t, dir+"/x", "e")
			if n := j.open(); n != 0 {
				t.Errorf("%d entries left in the journal", n)
			}
		})
	}
}

func TestTheProbeDeclaresWhatIsThere(t *testing.T) {
	for name, calls := range systems() {
		t.Run(name, func(t *testing.T) {
			l, dir := newLayer(t, files.Config{Calls: calls}), folder(t)
			got, err := l.Probe(context.Background(), dir)
			must(t, err)
			want := files.Faces{Exclusive: true, Guarded: true}
			if calls, ok := calls.(without); ok && calls.exchange {
				want.Guarded = false
			}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			wantNames(t, dir)
		})
	}
	l := newLayer(t, files.Config{})
	_, err := l.Probe(context.Background(), filepath.Join(folder(t), "missing"))
	wantCode(t, err, wire.CodeNotFound)
}
