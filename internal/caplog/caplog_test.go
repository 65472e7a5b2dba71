package caplog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, path string, cap int64) *Writer {
	t.Helper()
	w, err := Open(path, cap, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNeitherFileOutgrowsTheCap(t *testing.T) {
	const cap = 1000
	path := filepath.Join(t.TempDir(), "logs", "log")
	w := open(t, path, cap)
	var last string
	for i := range 500 {
		last = fmt.Sprintf("record %d %s\n", i, strings.Repeat("x", i%90))
		if n, err := w.Write([]byte(last)); err != nil || n != len(last) {
			t.Fatalf("Write: %d, %v", n, err)
		}
		for _, file := range []string{path, Previous(path)} {
			if info, err := os.Stat(file); err == nil && info.Size() > cap {
				t.Fatalf("%s has %d bytes after record %d", file, info.Size(), i)
			}
		}
	}
	both := content(t, Previous(path)) + content(t, path)
	if !strings.HasSuffix(both, last) {
		t.Error("the last record is not the last")
	}
	if len(both) < cap {
		t.Errorf("only %d bytes are kept", len(both))
	}
	for line := range strings.Lines(both) {
		if !strings.HasPrefix(line, "record ") || !strings.HasSuffix(line, "\n") {
			t.Errorf("torn record %q", line)
		}
	}
}

func TestARecordAboveTheCapIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w := open(t, path, 10)
	if n, err := w.Write(bytes.Repeat([]byte("y"), 25)); n != 25 || err != nil {
		t.Errorf("Write: %d, %v", n, err)
	}
	if got := content(t, path); got != "yyyyyyyyyy" {
		t.Errorf("log is %q", got)
	}
}

func TestTheLogGoesOnWhereItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, record := range []string{"one\n", "two\n"} {
		w := open(t, path, 100)
		if _, err := w.Write([]byte(record)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("late")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
	}
	if got := content(t, path); got != "one\ntwo\n" {
		t.Errorf("log is %q", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAFileTakenAwayIsBegunAnew(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			w := open(t, path, 100)
			if _, err := w.Write([]byte("before\n")); err != nil {
				t.Fatal(err)
			}
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte("after\n")); err != nil {
				t.Fatal(err)
			}
			if got := content(t, path); got != "after\n" {
				t.Errorf("log is %q", got)
			}
		})
	}
}

func TestTheCapHoldsWhereRotationCannotBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.MkdirAll(filepath.Join(Previous(path), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := open(t, path, 20)
	for range 10 {
		if _, err := w.Write([]byte("12 bytes ...")); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, path); got != "12 bytes ..." {
		t.Errorf("log is %q", got)
	}
}

func TestWhoeverAskedIsToldOfEachFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	told := 0
	w, err := Open(path, 10, func(*os.File) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 3 {
		if _, err := w.Write([]byte("8 bytes.")); err != nil {
			t.Fatal(err)
		}
	}
	if told != 3 {
		t.Errorf("told %d times of 3 files", told)
	}
}

func TestManyWritersTearNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w := open(t, path, 1<<20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				if _, err := w.Write([]byte(strings.Repeat(fmt.Sprint(i), 40) + "\n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	lines := 0
	for line := range strings.Lines(content(t, path)) {
		lines++
		if line != strings.Repeat(line[:1], 40)+"\n" {
			t.Fatalf("torn record %q", line)
		}
	}
	if lines != 800 {
		t.Errorf("%d records of 800", lines)
	}
}
