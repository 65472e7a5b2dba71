package fence_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sema-agent/device-executor/fence"
)

var (
	aProcess = fence.Entry{Kind: fence.EntryProcess, InstructionID: "ins_a", BootID: "boot", PID: 4711, StartTime: 99}
	aTemp    = fence.Entry{Kind: fence.EntryTemp, InstructionID: "ins_b", Target: "/w/a.txt", Temp: ".sema-1", Ours: "1.2", Expected: "3.4"}
)

func openLedger(t *testing.T) (*fence.Ledger, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	l, err := fence.OpenLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l, dir
}

func entries(t *testing.T, l *fence.Ledger) (found []fence.Entry, aside []string) {
	t.Helper()
	list, aside, err := l.Entries()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		found = append(found, f.Entry)
	}
	return found, aside
}

// besidesSpares lists the files of a ledger that are not kept in reserve.
func besidesSpares(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".spare") {
			names = append(names, f.Name())
		}
	}
	return names
}

func TestLedgerOutlivesItsProcess(t *testing.T) {
	l, dir := openLedger(t)
	odd := fence.Entry{Kind: fence.EntryTemp, InstructionID: "ins_c", Target: "/w/\xff\xfe name\n", Temp: "t\xff"}
	want := []fence.Entry{aProcess, aTemp, odd}
	var keys []fence.Key
	for _, e := range want {
		k, err := l.Add(e)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	again, err := fence.OpenLedger(dir) // the next start, by chance with our pid
	if err != nil {
		t.Fatal(err)
	}
	found, aside := entries(t, again)
	if !slices.Equal(found, want) || len(aside) != 0 {
		t.Errorf("found %+v, set aside %v", found, aside)
	}
	if k, err := again.Add(aProcess); err != nil || slices.Contains(keys, k) {
		t.Errorf("a new entry took the place of one that was left: %v, %v", k, err)
	}
	for _, k := range keys[1:] {
		if err := again.Remove(k); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Remove(keys[1]); err != nil {
		t.Errorf("removing twice: %v", err)
	}
	if found, _ := entries(t, again); !slices.Equal(found, []fence.Entry{aProcess, aProcess}) {
		t.Errorf("left %+v", found)
	}
	for _, p := range []string{dir, filepath.Join(dir, string(keys[0]))} {
		info, err := os.Lstat(p)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", p, info.Mode(), err)
		}
	}
}

func TestTornAndForgedEntriesAreSetAside(t *testing.T) {
	l, dir := openLedger(t)
	if _, err := l.Add(aProcess); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("torn.json", `{"kind":"process","instructionId":"ins_a","bootId":"b","pid":47`)
	write("empty.json", "")
	write("garbage.json", "\x00\xff")
	write("two.json", `{} {}`)
	write("init.json", `{"kind":"process","instructionId":"i","bootId":"b","pid":1,"startTime":1}`)
	write("group.json", `{"kind":"process","instructionId":"i","bootId":"b","pid":-5,"startTime":1}`)
	write("no-boot.json", `{"kind":"process","instructionId":"i","pid":4711,"startTime":1}`)
	write("elsewhere.json", `{"kind":"temp","instructionId":"i","target":"/w/a","temp":"../../etc/passwd"}`)
	write("itself.json", `{"kind":"temp","instructionId":"i","target":"/w/a","temp":"a"}`)
	write("relative.json", `{"kind":"temp","instructionId":"i","target":"a/../b","temp":"c"}`)
	write("kind.json", `{"kind":"wish"}`)
	write("huge.json", `{"kind":"`+strings.Repeat("x", 70_000)+`"}`)
	write("entry.json.tmp", `{}`)
	good := `{"kind":"process","instructionId":"i","bootId":"b","pid":4712,"startTime":1}`
	write("writable.json", good)
	outside := filepath.Join(t.TempDir(), "good")
	for _, err := range []error{
		os.Chmod(filepath.Join(dir, "writable.json"), 0o666),
		os.WriteFile(outside, []byte(good), 0o600),
		os.Symlink(outside, filepath.Join(dir, "link.json")),
		os.Mkdir(filepath.Join(dir, "folder.json"), 0o700),
		syscall.Mkfifo(filepath.Join(dir, "fifo.json"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	found, aside := entries(t, l)
	if !slices.Equal(found, []fence.Entry{aProcess}) {
		t.Errorf("believed %+v", found)
	}
	if len(aside) != 17 {
		t.Errorf("set aside %d: %v", len(aside), aside)
	}
	found, aside = entries(t, l)
	if len(found) != 1 || len(aside) != 0 {
		t.Errorf("the second time: believed %+v, set aside %v", found, aside)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != good {
		t.Errorf("what a link points to was touched: %v", err)
	}
}

func TestSetAsideFilesAreBounded(t *testing.T) {
	l, dir := openLedger(t)
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.json", i)), []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, aside := entries(t, l); len(aside) != 100 {
		t.Errorf("named %d of 100", len(aside))
	}
	if files := besidesSpares(t, dir); len(files) > 64 {
		t.Errorf("%d files are kept", len(files))
	}
}

func TestAddRefusesWhatItWouldNotBelieve(t *testing.T) {
	l, dir := openLedger(t)
	for _, e := range []fence.Entry{
		{},
		{Kind: fence.EntryProcess, BootID: "b", PID: 1, StartTime: 1},
		{Kind: fence.EntryProcess, PID: 4711, StartTime: 1},
		{Kind: fence.EntryTemp, Target: "a"},
		{Kind: fence.EntryTemp, Target: "/a", Temp: "b/c"},
		{Kind: fence.EntryTemp, Target: "/" + strings.Repeat("x", 70_000)},
	} {
		if _, err := l.Add(e); err == nil {
			t.Errorf("took %.100v", e)
		}
	}
	if files := besidesSpares(t, dir); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

func TestLedgerNeedsAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fence.OpenLedger(file); err == nil {
		t.Error("a file will do")
	}
	target := t.TempDir()
	link := filepath.Join(t.TempDir(), "ledger")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := fence.OpenLedger(link); err == nil {
		t.Error("a link will do")
	}
	if _, err := fence.OpenLedger(filepath.Join(target, "a", "b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its parent: %v", err)
	}
}

// FuzzLedgerEntry: whatever lies in the ledger, reading it neither fails nor panics,
// and what is believed can be written and read again.
func FuzzLedgerEntry(f *testing.F) {
	f.Add([]byte(`{"kind":"process","instructionId":"i","bootId":"b","pid":4711,"startTime":1}`))
	f.Add([]byte(`{"kind":"temp","instructionId":"i","target":"/w/a","temp":"t","ours":"1","expected":"2"}`))
	f.Add([]byte(`{"kind":"temp","target":"\u0000L//+","temp":"\u0000!"}`))
	dir := filepath.Join(f.TempDir(), "ledger")
	l, err := fence.OpenLedger(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "x.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		found, aside := entries(t, l)
		if len(found)+len(aside) != 1 {
			t.Fatalf("one file gave %d entries and %d set aside", len(found), len(aside))
		}
		if len(found) == 0 {
			return
		}
		if err := l.Remove("x.json"); err != nil {
			t.Fatal(err)
		}
		key, err := l.Add(found[0])
		if err != nil {
			t.Fatalf("believed, but not to be written: %v", err)
		}
		again, _ := entries(t, l)
		if !slices.Equal(again, found) {
			t.Fatalf("%+v became %+v", found, again)
		}
		if err := l.Remove(key); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkLedger(b *testing.B) {
	l, err := fence.OpenLedger(filepath.Join(b.TempDir(), "ledger"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		k, err := l.Add(aProcess)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Remove(k); err != nil {
			b.Fatal(err)
		}
	}
}
