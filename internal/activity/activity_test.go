package activity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/wire"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func record(t *testing.T, dir string, change func(*activity.Config)) *activity.Recorder {
	t.Helper()
	c := activity.Config{Dir: dir, Now: func() time.Time { return noon }, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	return activity.New(c)
}

func finish(t *testing.T, r *activity.Recorder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// all reads what is there now.
func all(t *testing.T, r *activity.Reader) []activity.Entry {
	t.Helper()
	var entries []activity.Entry
	for {
		e, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return entries
		}
		entries = append(entries, e)
	}
}

func read(t *testing.T, dir string) []activity.Entry {
	t.Helper()
	r := activity.NewReader(dir)
	defer r.Close()
	entries := all(t, r)
	if r.Skipped() != 0 {
		t.Errorf("%d lines were skipped", r.Skipped())
	}
	return entries
}

func work(id string, kind wire.Kind, args wire.Args) instructions.Work {
	return instructions.Work{ID: id, Kind: kind, RootSessionID: "ses_1", Args: args, Received: noon}
}

func TestALineSaysHowAnInstructionWent(t *testing.T) {
	started, over := noon.Add(20*time.Millisecond), noon.Add(1520*time.Millisecond)
	exit := int64(3)
	for name, c := range map[string]struct {
		kind   wire.Kind
		report instructions.Report
		want   activity.Entry
	}{
		"a command": {wire.KindExec,
			instructions.Report{Started: started, Ended: over, BytesOut: 7, Outcome: wire.ExecOutcome{ExitCode: 3}, ProcessesEnded: 2},
			activity.Entry{WaitedMs: 20, DurationMs: 1500, BytesOut: 7, Outcome: "ok", ExitCode: &exit, ProcessesEnded: 2}},
		"a write": {wire.KindWriteFile,
			instructions.Report{Started: started, Ended: over, BytesIn: 9, Outcome: wire.WriteOutcome{}},
			activity.Entry{WaitedMs: 20, DurationMs: 1500, BytesIn: 9, Outcome: "ok"}},
		"a failure": {wire.KindReadTextFile,
			instructions.Report{Started: started, Ended: over, Outcome: wire.Failf(wire.CodeNotFound, "read /secret/place: gone")},
			activity.Entry{WaitedMs: 20, DurationMs: 1500, Outcome: "not_found"}},
		"cancelled before it began": {wire.KindExec,
			instructions.Report{Ended: over, Outcome: wire.CancelledOutcome{State: wire.CancelNotStarted}},
			activity.Entry{WaitedMs: 1520, Outcome: "not_started"}},
		"fenced": {wire.KindExec,
			instructions.Report{Started: started, Ended: over, Fenced: true, Outcome: wire.ExecOutcome{}},
			activity.Entry{WaitedMs: 20, DurationMs: 1500, Outcome: "fenced"}},
		"stuck": {wire.KindFileInfo,
			instructions.Report{Started: started, Ended: over, Stuck: true, Outcome: wire.Failf(wire.CodeTimeout, "x")},
			activity.Entry{WaitedMs: 20, DurationMs: 1500, Stuck: true, Outcome: "timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := record(t, dir, nil)
			r.Ended(work("ins_1", c.kind, nil), c.report)
			finish(t, r)
			want := c.want
			want.Phase, want.Time, want.PID = activity.Ended, noon, os.Getpid()
			want.ID, want.RootSessionID, want.Kind = "ins_1", "ses_1", c.kind
			got := read(t, dir)
			if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestTextsAreThereOnlyWhereTheOwnerAskedForThem(t *testing.T) {
	const marked = "/marked/path-7f3a"
	everything := []instructions.Work{
		work("1", wire.KindExec, wire.ExecArgs{Command: "cat " + marked}),
		work("2", wire.KindReadTextFile, wire.PathArgs{Path: marked}),
		work("3", wire.KindReadTextLines, wire.ReadLinesArgs{Path: marked}),
		work("4", wire.KindWriteFile, wire.WriteArgs{Path: marked}),
		work("5", wire.KindRemove, wire.DirArgs{Path: marked}),
		work("6", wire.KindStatBatch, wire.StatBatchArgs{Paths: []string{marked}}),
	}
	for _, asked := range []bool{false, true} {
		dir := t.TempDir()
		r := record(t, dir, func(c *activity.Config) { c.LogCommands = asked })
		for _, w := range everything {
			r.Received(w)
			r.Started(w, noon)
			r.Ended(w, instructions.Report{Ended: noon, Outcome: wire.Failf(wire.CodeUnknown, "trouble with %s-in-a-message", marked)})
		}
		finish(t, r)
		text, err := os.ReadFile(filepath.Join(dir, "activity.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("in-a-message")) {
			t.Error("a failure's message is in the record")
		}
		if n := bytes.Count(text, []byte(marked)); asked != (n == len(everything)+1) || !asked && n > 0 {
			t.Errorf("asked %v: the path is there %d times", asked, n)
		}
	}
}

func TestOnlyTheOwnerCanReadIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "activity.jsonl")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := record(t, dir, func(c *activity.Config) { c.MaxFileBytes = 1 })
	for i := range 3 {
		r.Ended(work(fmt.Sprint(i), wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
		eventually(t, func() bool { return r.Waiting() == 0 })
	}
	finish(t, r)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", name, info.Mode())
		}
	}
}

// eventually waits for what another goroutine is about to bring about.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("it did not come about")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTheRecordIsBoundedAndKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	const most = 100 << 10
	r := record(t, dir, func(c *activity.Config) { c.MaxFileBytes = most })
	const n = 20_000
	for i := range n {
		eventually(t, func() bool { return r.Waiting() < 500 })
		r.Ended(work(fmt.Sprintf("ins_%d", i), wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	}
	finish(t, r)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if len(names) != 4 || total > 4*most {
		t.Errorf("%d files, %d bytes", len(names), total)
	}
	entries := read(t, dir)
	for i, e := range entries {
		if want := fmt.Sprintf("ins_%d", n-len(entries)+i); e.ID != want {
			t.Fatalf("entry %d of %d is %s, want %s", i, len(entries), e.ID, want)
		}
	}
	if len(entries) < 1000 {
		t.Errorf("only %d lines were kept", len(entries))
	}
}

// The follower reads all the time, and the files are so small that it meets
// rotations at every step of its own. It is never let fall behind by as much as
// is kept.
func TestAFollowerSeesEveryLineOnceAcrossRotations(t *testing.T) {
	dir := t.TempDir()
	follower := activity.NewReader(dir)
	defer follower.Close()
	if got := all(t, follower); len(got) != 0 {
		t.Fatalf("there was nothing yet: %v", got)
	}
	const n, abreast = 2_000, 40
	r := record(t, dir, func(c *activity.Config) { c.MaxFileBytes = 4 << 10 }) // some 20 lines
	var seen atomic.Int64
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range int64(n) {
			for i-seen.Load() > abreast {
				runtime.Gosched()
			}
			r.Ended(work(fmt.Sprintf("ins_%d", i), wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for seen.Load() < n {
		e, ok, err := follower.Next()
		switch {
		case err != nil:
			t.Fatal(err)
		case ok:
			if want := fmt.Sprintf("ins_%d", seen.Load()); e.ID != want {
				t.Errorf("%s comes where %s should", e.ID, want)
				seen.Store(n) // lets the writer go
				break
			}
			seen.Add(1)
		case time.Now().After(deadline):
			t.Errorf("line %d never came", seen.Load())
			seen.Store(n)
		}
	}
	writer.Wait()
	finish(t, r)
	if follower.Skipped() != 0 || follower.Overtaken() != 0 {
		t.Errorf("%d lines were skipped, overtaken %d times", follower.Skipped(), follower.Overtaken())
	}
}

// put writes one line, and before it puts aside what is there.
func put(t *testing.T, dir, id string) {
	t.Helper()
	r := record(t, dir, func(c *activity.Config) { c.MaxFileBytes = 1 })
	r.Ended(work(id, wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	finish(t, r)
}

func TestAFollowerKnowsThatItWasOvertaken(t *testing.T) {
	ids := func(entries []activity.Entry) (all []string) {
		for _, e := range entries {
			all = append(all, e.ID)
		}
		return all
	}
	dir := t.TempDir()
	follower := activity.NewReader(dir)
	defer follower.Close()
	put(t, dir, "0")
	want := func(overtaken int, lines ...string) {
		t.Helper()
		if got := ids(all(t, follower)); !slices.Equal(got, lines) || follower.Overtaken() != overtaken {
			t.Errorf("read %v, overtaken %d times; want %v and %d", got, follower.Overtaken(), lines, overtaken)
		}
	}
	want(0, "0")
	for i := range 6 { // two more than are kept
		put(t, dir, fmt.Sprint(i+1))
	}
	want(1, "3", "4", "5", "6")
	put(t, dir, "7")
	want(1, "7")

	// What somebody took away was not put aside: all that came was read.
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	want(1)
	put(t, dir, "8")
	want(1, "8")
}

func TestATornLineSpoilsNoOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "activity.jsonl")
	one := func(id string) {
		r := record(t, dir, nil)
		r.Ended(work(id, wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
		finish(t, r)
	}
	one("first")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	one("torn")
	if err := os.Truncate(path, info.Size()+40); err != nil {
		t.Fatal(err)
	}
	one("last")
	r := activity.NewReader(dir)
	defer r.Close()
	got := all(t, r)
	if len(got) != 2 || got[0].ID != "first" || got[1].ID != "last" || r.Skipped() != 1 {
		t.Errorf("%d skipped, got %+v", r.Skipped(), got)
	}
}

func TestAFullQueueCostsLinesAndNeverTime(t *testing.T) {
	dir := t.TempDir()
	// The folder is not there: the file cannot be opened, as on a broken disk.
	missing := filepath.Join(dir, "not", "there", "yet")
	r := record(t, missing, nil)
	var writers sync.WaitGroup
	const each, many = 2_000, 4
	for range many {
		writers.Go(func() {
			for range each {
				r.Ended(work("ins", wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
			}
		})
	}
	writers.Wait()
	if err := os.MkdirAll(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	r.Ended(work("after", wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	finish(t, r)
	var lost, there int64
	for _, e := range read(t, missing) {
		lost += e.Lost
		if e.Phase == activity.Ended {
			there++
		}
	}
	if lost == 0 || lost+there != each*many+1 {
		t.Errorf("%d lines and %d said to be missing, of %d", there, lost, each*many+1)
	}
}

// stuck is a log whose reader has gone to sleep, and with it whoever tells it
// something.
type stuck struct {
	slog.Handler
	told, woken chan struct{}
}

func (s stuck) Handle(context.Context, slog.Record) error {
	close(s.told)
	<-s.woken
	return nil
}

func TestWhatWaitsForTheDiskIsSmall(t *testing.T) {
	log := stuck{slog.NewTextHandler(os.Stderr, nil), make(chan struct{}), make(chan struct{})}
	r := record(t, filepath.Join(t.TempDir(), "missing"), func(c *activity.Config) { c.LogCommands, c.Log = true, slog.New(log) })
	end := func(args wire.Args) {
		r.Ended(work("ins", wire.KindExec, args), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	end(wire.ExecArgs{})
	<-log.told
	before := held()
	for range 50 {
		end(wire.ExecArgs{Command: strings.Repeat("x", 1<<20)})
		end(wire.PathArgs{Path: strings.Repeat("x", 1<<20)})
	}
	if after := held(); after > before+(16<<20) {
		t.Errorf("%d MiB are held for %d lines", (after-before)>>20, r.Waiting())
	}
	close(log.woken)
	finish(t, r)
}

func TestWhatBeganAndNeverEndedIsInTheRecord(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, nil)
	for _, w := range []instructions.Work{work("over", wire.KindExec, nil), work("cut off", wire.KindExecStream, nil), work("short", wire.KindRemove, nil)} {
		r.Started(w, noon)
	}
	r.Ended(work("over", wire.KindExec, nil), instructions.Report{Started: noon, Ended: noon, Outcome: wire.ExecOutcome{}})
	finish(t, r)
	got := activity.Unended(read(t, dir))
	if len(got) != 2 || got[0].ID != "cut off" || got[0].Phase != activity.Began || got[1].ID != "over" {
		t.Errorf("got %+v", got)
	}
}

func TestAFileTakenAwayIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, nil)
	end := func(id string) {
		r.Ended(work(id, wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	}
	end("one")
	eventually(t, func() bool { return len(read(t, dir)) == 1 })
	if err := os.Remove(filepath.Join(dir, "activity.jsonl")); err != nil {
		t.Fatal(err)
	}
	end("two")
	finish(t, r)
	if got := read(t, dir); len(got) != 1 || got[0].ID != "two" {
		t.Errorf("got %+v", got)
	}
}

func TestALinkPlantedInItsPlaceIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, "activity.jsonl")); err != nil {
		t.Fatal(err)
	}
	r := record(t, dir, nil)
	r.Ended(work("one", wire.KindExists, nil), instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	finish(t, r)
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestFilters(t *testing.T) {
	entry := func(kind wire.Kind, outcome string, at time.Time) activity.Entry {
		return activity.Entry{Phase: activity.Ended, Kind: kind, Outcome: outcome, Time: at}
	}
	for name, c := range map[string]struct {
		f    activity.Filter
		e    activity.Entry
		want bool
	}{
		"nothing asked":     {activity.Filter{}, entry("exec", "ok", noon), true},
		"too early":         {activity.Filter{Since: noon.Add(1)}, entry("exec", "ok", noon), false},
		"just in time":      {activity.Filter{Since: noon}, entry("exec", "ok", noon), true},
		"kind":              {activity.Filter{Kinds: []wire.Kind{"exec", "remove"}}, entry("remove", "ok", noon), true},
		"other kind":        {activity.Filter{Kinds: []wire.Kind{"exec"}}, entry("remove", "ok", noon), false},
		"outcome":           {activity.Filter{Outcomes: []string{"timeout"}}, entry("exec", "timeout", noon), true},
		"failed":            {activity.Filter{Outcomes: []string{"failed"}}, entry("exec", "timeout", noon), true},
		"ok is not failed":  {activity.Filter{Outcomes: []string{"failed"}}, entry("exec", "ok", noon), false},
		"running is not":    {activity.Filter{Outcomes: []string{"failed"}}, activity.Entry{Phase: activity.Began, Time: noon}, false},
		"a gap is told of":  {activity.Filter{Kinds: []wire.Kind{"exec"}}, activity.Entry{Phase: activity.Gap, Time: noon}, true},
		"an old gap is not": {activity.Filter{Since: noon.Add(1)}, activity.Entry{Phase: activity.Gap, Time: noon}, false},
	} {
		if got := c.f.Takes(c.e); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNamesTheServerChoseAreBounded(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, func(c *activity.Config) { c.LogCommands = true })
	long := strings.Repeat("é", 1<<20)
	paths := make([]string, 1000)
	for i := range paths {
		paths[i] = long
	}
	w := work(long, wire.Kind(long), wire.StatBatchArgs{Paths: paths})
	w.RootSessionID = long
	r.Ended(w, instructions.Report{Ended: noon, Outcome: wire.VoidOutcome{}})
	finish(t, r)
	info, err := os.Stat(filepath.Join(dir, "activity.jsonl"))
	if err != nil || info.Size() > 80<<10 || len(read(t, dir)) != 1 {
		t.Errorf("%v bytes, %v", info.Size(), err)
	}
	if len(paths[0]) != len(long) {
		t.Error("the instruction's own arguments were changed")
	}
}

func FuzzReader(f *testing.F) {
	good, err := json.Marshal(activity.Entry{Phase: activity.Ended, Time: noon, ID: "good"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("{\n\n\x00"))
	f.Fuzz(func(t *testing.T, junk []byte) {
		dir := t.TempDir()
		content := append(append(bytes.Clone(junk), '\n'), append(bytes.Clone(good), '\n')...)
		if err := os.WriteFile(filepath.Join(dir, "activity.jsonl"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		r := activity.NewReader(dir)
		defer r.Close()
		got := all(t, r)
		if len(got) == 0 || got[len(got)-1].ID != "good" {
			t.Errorf("the line after %q is not read", junk)
		}
	})
}

func TestAMissingFileOfTheRecordStopsNoReader(t *testing.T) {
	t.Parallel()
	fileName := func(i int) string {
		if i == 0 {
			return "activity.jsonl"
		}
		return fmt.Sprintf("activity.%d.jsonl", i)
	}
	line := func(id string) []byte {
		b, err := json.Marshal(activity.Entry{Phase: activity.Ended, Time: time.Unix(1, 0), ID: id, Kind: wire.KindExec, Outcome: activity.OK})
		if err != nil {
			t.Fatal(err)
		}
		return append(b, '\n')
	}
	for _, there := range [][]int{{1}, {3}, {3, 1}, {2, 0}, {3, 0}} {
		dir := t.TempDir()
		var want []string
		for _, i := range there {
			id := fmt.Sprint(i)
			want = append(want, id)
			if err := os.WriteFile(filepath.Join(dir, fileName(i)), line(id), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read := func(r *activity.Reader) (got []string) {
			for {
				e, ok, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return got
				}
				got = append(got, e.ID)
			}
		}
		r := activity.NewReader(dir)
		if got := read(r); !slices.Equal(got, want) {
			t.Errorf("of the files %v: %v", there, got)
		}
		if there[len(there)-1] != 0 { // the one that grows comes into being later
			if err := os.WriteFile(filepath.Join(dir, fileName(0)), line("later"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := read(r); !slices.Equal(got, []string{"later"}) {
				t.Errorf("after the files %v: %v", there, got)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Nobody who follows may miss what comes after somebody emptied the file, however
// much of it there is.
func TestAFollowerSeesWhatComesAfterTheFileWasEmptied(t *testing.T) {
	for name, c := range map[string]struct{ before, after []string }{
		"just as many bytes": {[]string{"ins_1"}, []string{"ins_2"}},
		"fewer":              {[]string{"ins_1", "ins_2"}, []string{"ins_3"}},
		"more":               {[]string{"ins_1"}, []string{"ins_2", "ins_3", "ins_4"}},
		"many more":          {[]string{"ins_1"}, make([]string, 600)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "activity.jsonl")
			r := activity.NewReader(dir)
			defer r.Close()
			for i, ids := range [][]string{c.before, c.after} {
				var lines []byte
				for _, id := range ids {
					line, err := json.Marshal(activity.Entry{Phase: activity.Ended, Time: time.Unix(1e9+int64(i), 0).UTC(), PID: 1, ID: id})
					if err != nil {
						t.Fatal(err)
					}
					lines = append(append(lines, line...), '\n')
				}
				if err := os.WriteFile(path, lines, 0o600); err != nil { // which empties it first
					t.Fatal(err)
				}
				var got []string
				for _, e := range all(t, r) {
					got = append(got, e.ID)
				}
				if !slices.Equal(got, ids) || r.Skipped() != 0 {
					t.Errorf("saw %q of %q, skipped %d", got, ids, r.Skipped())
				}
			}
		})
	}
}

func TestAFIFOInPlaceOfTheRecordIsAnErrorAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "activity.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := activity.NewReader(dir)
	defer r.Close()
	if _, _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "it is not a regular file") {
		t.Errorf("got %v", err)
	}
}
