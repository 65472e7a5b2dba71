package executor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// awkward are names that something on the way might trip over. The two forms of é
// are two names where the file system keeps them apart.
var awkward = []string{"plain", "two words", ` leading and trailing `, `"double" and 'single'`, "new\nline", "tab\tand\rreturn",
	"caf\u00e9", "cafe\u0301", "日本語 🦄", "-rf", `back\slash`, "$(echo no)`no`;&|*?[", "<a>&amp;\u2028", "%s%n", "\x7f\x01", strings.Repeat("n", 255)}

func linkTo(target string) wire.StatOutcome {
	return wire.StatOutcome{LinkTarget: &wire.LinkTarget{IsLink: target != "", Target: target}}
}

func existing(yes bool) wire.StatOutcome { return wire.StatOutcome{ExistsValue: &yes} }

func on(kind wire.Kind, path string, recursive bool) refserver.Dispatch {
	return refserver.Dispatch{Kind: kind, Args: wire.DirArgs{Path: path, Recursive: &recursive}}
}

func lines(path string, offset, limit int64) refserver.Dispatch {
	return refserver.Dispatch{Kind: wire.KindReadTextLines, Args: wire.ReadLinesArgs{Path: path, Offset: &offset, Limit: &limit}}
}

func TestEveryFileKindKeepsItsWordUnderEveryName(t *testing.T) {
	w := newWay(t, refserver.Config{})
	for i, name := range awkward {
		t.Run(fmt.Sprintf("%+q", name[:min(len(name), 30)]), func(t *testing.T) {
			folder := fmt.Sprintf("%s/%d/%s", w.workspace, i, name)
			path := folder + "/" + name
			ask := func(what refserver.Dispatch, want any) answer {
				t.Helper()
				a := w.must(t, what)
				a.wants(t, string(what.Kind), want)
				return a
			}
			receipt := func(what refserver.Dispatch, created bool) string {
				t.Helper()
				a := w.must(t, what)
				o, ok := a.Outcome.(wire.WriteOutcome)
				if !ok || o.CanonicalPath != path || o.Created == nil || *o.Created != created || o.Inode == "" {
					t.Fatalf("%s: %+v", what.Kind, a.Outcome)
				}
				return o.Inode
			}
			read := func(kind wire.Kind, want string) {
				t.Helper()
				same(t, string(kind), ask(at(kind, path), wire.ReadOutcome{}).data, want)
			}

			ask(at(wire.KindExists, path), existing(false))
			for _, kind := range []wire.Kind{wire.KindFileInfo, wire.KindCanonicalPath, wire.KindReadTextFile, wire.KindReadBinaryFile, wire.KindReadLink} {
				ask(at(kind, path), wire.CodeNotFound)
			}
			ask(at(wire.KindListDir, folder), wire.CodeNotFound)
			ask(on(wire.KindCreateDir, folder, false), wire.CodeNotFound)
			ask(on(wire.KindCreateDir, folder, true), wire.VoidOutcome{})
			ask(on(wire.KindCreateDir, folder, true), wire.VoidOutcome{})
			ask(on(wire.KindCreateDir, folder, false), wire.CodeAlreadyExists)
			ask(at(wire.KindListDir, folder), wire.StatOutcome{Entries: []wire.FileInfo{}})

			receipt(put(wire.KindWriteFileExclusive, path, "first\n"), true)
			ask(put(wire.KindWriteFileExclusive, path, "second\n"), wire.CodeAlreadyExists)
			read(wire.KindReadTextFile, "first\n")
			content := "one\r\n\xff\xfe\x00two\n\nlast"
			id := receipt(put(wire.KindWriteFile, path, content), false)
			read(wire.KindReadTextFile, content)
			read(wire.KindReadBinaryFile, content)
			same(t, "lines", ask(lines(path, 1, 2), wire.ReadOutcome{}).data, "\xff\xfe\x00two\n\n")
			same(t, "no line", ask(lines(path, 0, 0), wire.ReadOutcome{}).data, "")

			guarded := put(wire.KindWriteFileGuarded, path, "guarded\n")
			guarded.Args = wire.WriteArgs{Path: path, Expect: &wire.Expect{CanonicalPath: path, FileID: id + "1", NoFollow: true}}
			ask(guarded, wire.CodePreconditionFailed)
			read(wire.KindReadTextFile, content)
			guarded.Args = wire.WriteArgs{Path: path, Expect: &wire.Expect{CanonicalPath: path, FileID: id, NoFollow: true}}
			if receipt(guarded, false) == id {
				t.Error("the new object has the old one's identity")
			}
			ask(guarded, wire.CodePreconditionFailed)
			ask(put(wire.KindAppendFile, path, "more"), wire.VoidOutcome{})
			read(wire.KindReadTextFile, "guarded\nmore")

			if err := os.Symlink(name, folder+"/link"); err != nil {
				t.Fatal(err)
			}
			ask(at(wire.KindReadLink, folder+"/link"), linkTo(name))
			ask(at(wire.KindReadLink, path), linkTo(""))
			ask(at(wire.KindCanonicalPath, folder+"/link"), wire.StatOutcome{CanonicalPath: path})

			info := ask(at(wire.KindFileInfo, path), w.info(t, path)).Outcome.(wire.StatOutcome)
			entries := []wire.FileInfo{*w.info(t, folder+"/link").Info, *info.Info}
			if name < "link" {
				entries[0], entries[1] = entries[1], entries[0]
			}
			ask(at(wire.KindListDir, folder), wire.StatOutcome{Entries: entries})

			ask(on(wire.KindRemove, folder+"/link", false), wire.VoidOutcome{})
			ask(at(wire.KindExists, path), existing(true))
			ask(at(wire.KindListDir, path), wire.CodeNotDirectory)
			for _, kind := range []wire.Kind{wire.KindReadTextFile, wire.KindReadBinaryFile} {
				ask(at(kind, folder), wire.CodeIsDirectory)
			}
			ask(put(wire.KindWriteFile, folder, "x"), wire.CodeIsDirectory)
			ask(put(wire.KindAppendFile, folder, "x"), wire.CodeIsDirectory)
			ask(on(wire.KindRemove, folder, false), wire.CodeIsDirectory)
			ask(on(wire.KindRemove, folder, true), wire.VoidOutcome{})
			ask(on(wire.KindRemove, folder, true), wire.CodeNotFound)
		})
	}
}

// info is the truth about an object, as the wire would say it.
func (w *way) info(t *testing.T, path string) wire.StatOutcome {
	t.Helper()
	i, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	kind, mode := wire.FileFile, int64(i.Mode().Perm())
	switch {
	case i.Mode()&os.ModeSymlink != 0:
		kind = wire.FileSymlink
	case i.IsDir():
		kind = wire.FileDir
	}
	return wire.StatOutcome{Info: &wire.FileInfo{Path: path, Kind: kind, Size: i.Size(), MtimeMs: i.ModTime().UnixMilli(), Mode: &mode}}
}

func TestBothFormsOfAnAccentAreTwoFiles(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("one file by two names here")
	}
	w := newWay(t, refserver.Config{})
	composed, decomposed := w.workspace+"/caf\u00e9", w.workspace+"/cafe\u0301"
	w.must(t, put(wire.KindWriteFileExclusive, composed, "composed"))
	w.must(t, put(wire.KindWriteFileExclusive, decomposed, "decomposed"))
	a := w.must(t, at(wire.KindListDir, w.workspace))
	o, ok := a.Outcome.(wire.StatOutcome)
	if !ok || len(o.Entries) != 2 || o.Entries[0].Path != decomposed || o.Entries[1].Path != composed {
		t.Errorf("listed %+v", a.Outcome)
	}
	same(t, "composed", w.must(t, at(wire.KindReadTextFile, composed)).data, "composed")
	same(t, "decomposed", w.must(t, at(wire.KindReadTextFile, decomposed)).data, "decomposed")
}

func TestTemporariesAreTheirReceipt(t *testing.T) {
	w := newWay(t, refserver.Config{})
	for kind, mode := range map[wire.Kind]os.FileMode{wire.KindCreateTempDir: 0o700 | os.ModeDir, wire.KindCreateTempFile: 0o600} {
		args := wire.TempArgs{Prefix: "it's a\n\"é\" "}
		if kind == wire.KindCreateTempFile {
			args.Suffix = " end.txt"
		}
		a := w.must(t, refserver.Dispatch{Kind: kind, Args: args})
		o, ok := a.Outcome.(wire.WriteOutcome)
		if !ok {
			t.Fatalf("%s: %+v", kind, a.Outcome)
		}
		t.Cleanup(func() { _ = os.Remove(o.CanonicalPath) })
		i, err := os.Lstat(o.CanonicalPath)
		if err != nil || i.Mode() != mode {
			t.Errorf("%s: %v, %v", kind, i, err)
		}
		base := filepath.Base(o.CanonicalPath)
		if !strings.HasPrefix(base, args.Prefix) || !strings.HasSuffix(base, args.Suffix) {
			t.Errorf("%s: made %q", kind, o.CanonicalPath)
		}
		w.must(t, refserver.Dispatch{Kind: kind, Args: wire.TempArgs{Prefix: "../x"}}).wants(t, "a separator", wire.CodeInvalid)
	}
}

func TestAPathThatIsNoneIsInvalidForEveryKind(t *testing.T) {
	w := newWay(t, refserver.Config{})
	for _, path := range []string{"", "relative", "~/x", w.workspace + "/../x", w.workspace + "/./x", w.workspace + "/a\x00b"} {
		for _, kind := range []wire.Kind{wire.KindReadTextFile, wire.KindReadBinaryFile, wire.KindFileInfo, wire.KindListDir,
			wire.KindCanonicalPath, wire.KindExists, wire.KindReadLink} {
			w.must(t, at(kind, path)).wants(t, fmt.Sprintf("%s %q", kind, path), wire.CodeInvalid)
		}
		for _, kind := range []wire.Kind{wire.KindWriteFile, wire.KindWriteFileExclusive, wire.KindAppendFile} {
			w.must(t, put(kind, path, "x")).wants(t, fmt.Sprintf("%s %q", kind, path), wire.CodeInvalid)
		}
		for _, kind := range []wire.Kind{wire.KindCreateDir, wire.KindRemove} {
			w.must(t, on(kind, path, true)).wants(t, fmt.Sprintf("%s %q", kind, path), wire.CodeInvalid)
		}
	}
	if entries, err := os.ReadDir(w.workspace); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestANameThatIsNotUTF8FailsTheListingAndIsShown(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("there are no such names here")
	}
	w := newWay(t, refserver.Config{})
	for _, name := range []string{"fine", "caf\xe9"} {
		if err := os.WriteFile(filepath.Join(w.workspace, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := w.must(t, at(wire.KindListDir, w.workspace))
	if f, ok := a.Outcome.(wire.Failure); !ok || !strings.Contains(f.Message, `caf\xe9`) {
		t.Errorf("listed %+v", a.Outcome)
	}
}

func TestWhatNeverEndsOrNeverBeginsIsAnsweredAndKeepsTheConnection(t *testing.T) {
	w := newWay(t, refserver.Config{MaxInflight: 8})
	fifo, huge := filepath.Join(w.workspace, "fifo"), filepath.Join(w.workspace, "huge")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(huge, []byte("1\n2\n3\n4\n5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Skipf("no sparse file of 1 TiB here: %v", err)
	}
	began := time.Now()
	for _, path := range []string{fifo, "/dev/zero", "/dev/null"} {
		w.must(t, at(wire.KindReadTextFile, path)).wants(t, path, wire.CodeInvalid)
		w.must(t, lines(path, 0, 3)).wants(t, path, wire.CodeInvalid)
	}
	w.must(t, put(wire.KindWriteFile, fifo, "x")).wants(t, "write", wire.CodeInvalid)
	w.must(t, put(wire.KindAppendFile, fifo, "x")).wants(t, "append", wire.CodeInvalid)
	a := w.must(t, lines(huge, 0, 3))
	a.wants(t, "lines of a huge file", wire.ReadOutcome{})
	same(t, "lines of a huge file", a.data, "1\n2\n3\n")
	if runtime.GOOS == "linux" {
		a = w.must(t, at(wire.KindReadTextFile, "/proc/self/status"))
		a.wants(t, "/proc", wire.ReadOutcome{})
		if !strings.HasPrefix(a.data, "Name:") || !strings.Contains(a.data, "ctxt_switches") {
			t.Errorf("read %q", a.data)
		}
	}
	if took := time.Since(began); took > promptly {
		t.Errorf("all of it took %v", took)
	}
	// A read that cannot end is ended by its time, or by a cancel.
	what := at(wire.KindReadBinaryFile, huge)
	what.TimeoutMs = 500
	w.must(t, what).wants(t, "time's up", wire.CodeTimeout)
	s, err := w.start(at(wire.KindReadBinaryFile, huge))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, promptly, "the read is under way", func() bool { return s.Watermark() >= 3 })
	s.Cancel()
	how, err := s.answer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	how.wants(t, "cancelled", wire.CancelledOutcome{State: wire.CancelKilled})
	if n := w.State(w.device).Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestAListingTooLargeForAFrameSaysHowLarge(t *testing.T) {
	w := newWay(t, refserver.Config{})
	folder := quick(t)
	n := max(20_000, rounds(t, 1)*4_000)
	for i := range n {
		if err := os.Symlink("x", fmt.Sprintf("%s/%d", folder, i)); err != nil {
			t.Fatal(err)
		}
	}
	a := w.must(t, at(wire.KindListDir, folder))
	a.wants(t, "listing", wire.CodeUnknown)
	if m := a.Outcome.(wire.Failure).Message; !strings.Contains(m, fmt.Sprint(n)) || !strings.Contains(m, "1048576") {
		t.Errorf("it says %q", m)
	}
	w.must(t, shell("true")).wants(t, "afterwards", wire.ExecOutcome{})
	if n := w.State(w.device).Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestReadersNeverSeeAWriteHalfDone(t *testing.T) {
	w := newWay(t, refserver.Config{})
	folder := quick(t)
	path := folder + "/f"
	content := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 30_000) }
	whole := func(b string) bool { return len(b) == 30_000 && strings.Count(b, b[:1]) == len(b) }
	w.must(t, put(wire.KindWriteFile, path, content(0)))
	done := make(chan struct{})
	var readers sync.WaitGroup
	poll := func(read func() (string, error)) {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if b, err := read(); err != nil || !whole(b) {
					t.Errorf("a reader saw %d bytes, %v", len(b), err)
					return
				}
			}
		})
	}
	poll(func() (string, error) { b, err := os.ReadFile(path); return string(b), err })
	poll(func() (string, error) {
		a, err := w.do(context.Background(), at(wire.KindReadTextFile, path))
		return a.data, err
	})
	for i := range max(250, rounds(t, 1)*40) {
		a := w.must(t, put(wire.KindWriteFile, path, content(i)))
		if o, ok := a.Outcome.(wire.WriteOutcome); !ok || *o.Created {
			t.Errorf("round %d: %+v", i, a.Outcome)
			break
		}
	}
	close(done)
	readers.Wait()
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOneOfTwentyExclusiveWritersWinsOverTheLane(t *testing.T) {
	w := newWay(t, refserver.Config{MaxInflight: 20})
	folder := quick(t)
	for round := range max(15, rounds(t, 1)*10) {
		path := fmt.Sprintf("%s/%d", folder, round)
		answers := make([]answer, 20)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				var err error
				if answers[i], err = w.do(t.Context(), put(wire.KindWriteFileExclusive, path, strings.Repeat(fmt.Sprint(i%10), 5000+i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		won := -1
		for i, a := range answers {
			if o, ok := a.Outcome.(wire.WriteOutcome); ok && *o.Created && won < 0 {
				won = i
			} else {
				a.wants(t, "loser", wire.CodeAlreadyExists)
			}
		}
		b, err := os.ReadFile(path)
		if won < 0 || err != nil || string(b) != strings.Repeat(fmt.Sprint(won%10), 5000+won) {
			t.Fatalf("round %d: %d won, the file has %d bytes, %v", round, won, len(b), err)
		}
	}
}

func TestAFileWrittenAndRunAtOnceIsNeverBusy(t *testing.T) {
	w := newWay(t, refserver.Config{MaxInflight: 16})
	folder := quick(t)
	again := max(6, rounds(t, 1)*4)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			path := fmt.Sprintf("%s/%d", folder, i)
			for round := range again {
				a, err := w.do(t.Context(), put(wire.KindWriteFile, path, fmt.Sprintf("#!/bin/sh\nexit %d\n", round%100)))
				if _, ok := a.Outcome.(wire.WriteOutcome); err != nil || !ok {
					t.Errorf("round %d: %+v, %v", round, a.Outcome, err)
					return
				}
				command := path
				if round == 0 {
					command = "chmod +x " + path + " && " + path
				}
				if a, err = w.do(t.Context(), shell(command)); err != nil || a.Outcome != wire.Outcome(wire.ExecOutcome{ExitCode: int64(round % 100)}) {
					t.Errorf("round %d: %+v, %v: %s", round, a.Outcome, err, a.stderr)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestAPayloadCutByADisconnectWritesNothingAndSaysSo(t *testing.T) {
	w := newWay(t, refserver.Config{})
	for _, kind := range []wire.Kind{wire.KindWriteFile, wire.KindWriteFileExclusive, wire.KindAppendFile} {
		path := filepath.Join(w.workspace, string(kind))
		if kind != wire.KindWriteFileExclusive {
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var cut sync.Once
		w.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) (a refserver.Action) {
			if p, ok := f.(*wire.Payload); ok && p.Part == wire.PartChunk && p.Offset > 0 {
				cut.Do(func() { a.Cut = true })
			}
			return a
		}})
		a := w.must(t, put(kind, path, strings.Repeat("new", 500_000)))
		a.wants(t, string(kind), wire.CodeTargetUnavailable)
		if a.By != refserver.ByResult {
			t.Errorf("%s: settled by %s", kind, a.By)
		}
		b, err := os.ReadFile(path)
		if kind == wire.KindWriteFileExclusive && !os.IsNotExist(err) || kind != wire.KindWriteFileExclusive && string(b) != "old" {
			t.Errorf("%s: the file has %d bytes, %v", kind, len(b), err)
		}
	}
	w.SetFaults(refserver.Faults{})
	if entries, err := os.ReadDir(w.workspace); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
