package status

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func example(pid int) *Snapshot {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	return &Snapshot{
		Format: Format, PID: pid, Version: "1.2.3", DeviceID: "dev_1", Server: "https://sema.example", Started: at, Written: at,
		Epoch:      "01J8ZQ4T9X7M3K5N6P8R0S2V4W",
		State:      State{Phase: "backing_off", Cause: "dial_failed", Since: at, RetryAt: at.Add(time.Second), Attempt: 3},
		Generation: "18446744073709551617",
		Work:       []Work{{ID: "ins_1", Kind: "exec", Received: at, Started: at, BytesOut: 5}, {ID: "ins_2", Kind: "remove", Received: at}},
		Stuck:      []string{"ins_0"},
		Outbox:     Outbox{Instructions: 1, Chunks: 2, Bytes: 3, Results: 4, Waiting: 5, Dropped: 6},
		Counters:   Counters{Connections: 1, Instructions: 2, FramesIn: 3},
		LastError:  &LastError{At: at, Cause: "dial_failed", Text: "no route to host"},
		Notices:    []string{"the login shell gave no environment"},
		Host:       Environment{WorkspaceRoot: "/w", Shell: "/bin/bash", ProcessLevel: "whole tree"},
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	want := example(7)
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v", info.Mode().Perm())
	}
}

func TestReadersNeverSeeHalfASnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	if err := Write(path, example(1)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for pid := 1; ; pid++ {
			select {
			case <-done:
				return
			default:
			}
			s := example(pid)
			s.Notices = append(s.Notices, strings.Repeat("x", pid*97%30000))
			if err := Write(path, s); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		if _, err := Load(path); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	writer.Wait()
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("temporary files stayed: %v", left)
	}
}

func TestAFailedWriteLeavesTheOldSnapshotAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	if err := os.Mkdir(path, 0o700); err != nil { // a rename cannot replace a folder
		t.Fatal(err)
	}
	if err := Write(path, example(1)); err == nil {
		t.Fatal("writing over a folder succeeded")
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSweepRemovesOnlyTheLeftoversOfThisFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [name]*")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status.json", "status.json.new-1", "status.json.new-22", "other.new-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Sweep(filepath.Join(dir, "status.json"))
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 2 || left[0].Name() != "other.new-1" || left[1].Name() != "status.json" {
		t.Errorf("left: %v", left)
	}
}

func TestABrokenFileIsSaidToBeBroken(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty":         "",
		"torn":          `{"format":1,"pid":3,"st`,
		"not an object": `[]`,
		"other layout":  `{"format":2,"pid":3,"state":{"phase":"active"}}`,
		"no process":    `{"format":1,"state":{"phase":"active"}}`,
		"no state":      `{"format":1,"pid":3}`,
		"huge":          `{"format":1,"pid":3,"state":{"phase":"active"},"x":"` + strings.Repeat("x", MaxBytes) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			var broken *BrokenError
			if !errors.As(err, &broken) || broken.Path != path {
				t.Errorf("err = %v", err)
			}
		})
	}
	if _, err := Load(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestUnknownMembersAreNoTrouble(t *testing.T) {
	s, err := Decode([]byte(`{"format":1,"pid":3,"state":{"phase":"active","later":1},"later":{"a":[]}}`))
	if err != nil || s.PID != 3 || s.State.Phase != "active" {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzDecode(f *testing.F) {
	seed, err := Encode(example(7))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"format":1,"pid":1,"state":{"phase":"x","since":"0001-01-01T00:00:00Z"},"work":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		// Whatever was accepted can be written and read again, unless it grew by
		// being escaped.
		form, err := Encode(s)
		if err != nil {
			return
		}
		again, err := Decode(form)
		if err != nil {
			t.Fatalf("accepted %q, but not what was made of it: %v", b, err)
		}
		if again.PID != s.PID || again.State.Phase != s.State.Phase || len(again.Work) != len(s.Work) {
			t.Errorf("%+v became %+v", s, again)
		}
	})
}
