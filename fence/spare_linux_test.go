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

// disk mounts a file system in memory and returns how to fill it to the last byte.
func disk(t *testing.T) (dir string, fill func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs root to mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func() {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
}

func TestEntriesAreTakenThoughTheDiskIsFull(t *testing.T) {
	dir, fill := disk(t)
	dir = filepath.Join(dir, "ledger")
	if _, err := fence.OpenLedger(dir); err != nil {
		t.Fatal(err)
	}
	fill()
	l, err := fence.OpenLedger(dir) // a start on a full disk has what an earlier one kept
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 { // what was used is ready for use again
		var keys []fence.Key
		var want []fence.Entry
		for n := 0; ; n++ {
			e := aProcess
			e.InstructionID = fmt.Sprintf("ins_%d_%s", n, strings.Repeat("x", 3000-n*100))
			key, err := l.Add(e)
			if err != nil {
				if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
					t.Errorf("the one too many: %v", err)
				}
				break
			}
			keys, want = append(keys, key), append(want, e)
		}
		if len(keys) != 16 {
			t.Fatalf("round %d: there was room for %d", round, len(keys))
		}
		found, aside := entries(t, l)
		for _, e := range want {
			if !slices.Contains(found, e) {
				t.Errorf("round %d: an entry is not found again", round)
			}
		}
		if len(found) != len(want) || len(aside) != 0 {
			t.Errorf("round %d: %d found, %v set aside", round, len(found), aside)
		}
		for _, key := range keys {
			if err := l.Remove(key); err != nil {
				t.Error(err)
			}
		}
		if found, aside := entries(t, l); len(found)+len(aside) != 0 {
			t.Errorf("round %d: after removal %v, %v", round, found, aside)
		}
	}
}

// An orderly stop gives back the little room that the lock's pid took.
func TestALockIsTakenThoughTheDiskIsFull(t *testing.T) {
	dir, fill := disk(t)
	path := filepath.Join(dir, "lock")
	l, err := fence.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	fill()
	if l, err = fence.Lock(path); err != nil {
		t.Fatal(err)
	}
	var held *fence.HeldError
	if _, err := fence.Lock(path); !errors.As(err, &held) || held.PID != 0 {
		t.Errorf("a second lock: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestWhatACrashLeftOnAFullDiskIsFoundAndGivesItsRoomBack(t *testing.T) {
	dir, fill := disk(t)
	dir = filepath.Join(dir, "ledger")
	l, err := fence.OpenLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	fill()
	for range 16 {
		if _, err := l.Add(aProcess); err != nil {
			t.Fatal(err)
		}
	}
	again, err := fence.OpenLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := again.Entries()
	if err != nil || len(list) != 16 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for _, f := range list {
		if f.Entry != aProcess {
			t.Errorf("found %+v", f.Entry)
		}
		if err := again.Remove(f.Key); err != nil {
			t.Error(err)
		}
	}
	if _, err := again.Add(aProcess); err != nil {
		t.Error(err)
	}
}

func TestAForgedSpareHarmsNobody(t *testing.T) {
	root, fill := disk(t)
	dir := filepath.Join(root, "ledger")
	if _, err := fence.OpenLedger(dir); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "precious")
	precious := strings.Repeat("p", 4096)
	spares, err := filepath.Glob(filepath.Join(dir, "*.spare"))
	if err != nil || len(spares) == 0 {
		t.Fatalf("%v, %v", spares, err)
	}
	l, err := fence.OpenLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, []byte(precious), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range spares {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		switch i % 3 {
		case 0:
			err = os.Symlink(outside, name)
		case 1:
			err = syscall.Mkfifo(name, 0o600)
		default:
			err = os.Mkdir(name, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if _, err := l.Add(aProcess); err == nil {
		t.Error("an entry was written over what is no spare")
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != precious {
		t.Errorf("what a link points to was touched: %v", err)
	}
	if _, err := fence.OpenLedger(dir); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != precious {
		t.Errorf("what a link points to was touched by the next start: %v", err)
	}
}
