package holder_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/holder"
	"github.com/sema-agent/device-executor/internal/regular"
	"github.com/sema-agent/device-executor/internal/status"
)

func held(t *testing.T) (dir, lock string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "a device")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock = filepath.Join(dir, "lock")
	l, err := fence.Lock(lock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	return dir, lock
}

func says(t *testing.T, dir string, pid int) {
	t.Helper()
	err := status.Write(filepath.Join(dir, "status.json"), &status.Snapshot{PID: pid, State: status.State{Phase: "active", Since: time.Now()}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAHolderThatLeftNoNumberIsNeverNamedByOne(t *testing.T) {
	dir, lock := held(t)
	for _, text := range []string{"", "0\n", "-1\n", "garbage"} {
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		says(t, dir, 1) // which is another process than the one that holds it
		h, err := holder.Of(dir)
		if err != nil || h == nil || h.PID != 0 || h.Says != nil {
			t.Fatalf("%q: %+v, %v", text, h, err)
		}
		all := h.String() + h.Command() + h.Step("End it first")
		if strings.Contains(all, "kill") || h.String() != "a process that left no number" || !strings.Contains(h.Step("End it first"), "End it first. See which") {
			t.Errorf("%q: %s", text, all)
		}
		if !strings.HasSuffix(h.Command(), " '"+lock+"'") {
			t.Errorf("%s does not ask for %s", h.Command(), lock)
		}
	}
	if runtime.GOOS == "linux" {
		says(t, dir, os.Getpid())
		if h, err := holder.Of(dir); err != nil || h.PID != os.Getpid() || h.Says == nil {
			t.Errorf("the executor's own word on its number: %+v, %v", h, err)
		}
	}
}

func TestAHolderIsBelievedOfItselfAlone(t *testing.T) {
	dir, _ := held(t)
	h, err := holder.Of(dir)
	if err != nil || h.PID != os.Getpid() || h.Says != nil || h.Trouble != nil || h.Command() == "" {
		t.Fatalf("%+v, %v", h, err)
	}
	says(t, dir, os.Getpid()+1)
	if h, _ := holder.Of(dir); h.Says != nil {
		t.Error("an earlier executor's word counts")
	}
	says(t, dir, os.Getpid())
	if h, _ := holder.Of(dir); h.Says == nil {
		t.Error("its own word does not count")
	}
	if err := os.WriteFile(filepath.Join(dir, "status.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, _ := holder.Of(dir); h.Says != nil || h.Trouble == nil {
		t.Errorf("%+v", h)
	}
}

func TestALockThatIsNoFileHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	if h, err := holder.Of(dir); h != nil || err != nil {
		t.Errorf("a device that nobody served yet: %v, %v", h, err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Of(dir); !errors.Is(err, regular.ErrOther) {
		t.Errorf("got %v", err)
	}
}

func TestADeviceThatIsServedFromAnotherFolderIsHeld(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), "dev_01") // a copy from before it was served
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := fence.LockDevice(filepath.Join(t.TempDir(), "lock"), "dev_01")
	if err != nil {
		t.Fatal(err)
	}
	if h, err := holder.Of(dir); err != nil || h == nil || h.PID != os.Getpid() || h.Says != nil {
		t.Errorf("%+v, %v", h, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if h, err := holder.Of(dir); h != nil || err != nil {
		t.Errorf("after its end: %+v, %v", h, err)
	}
}

func TestADeviceThatIsServedFromACopyOfItsFolderIsHeld(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", "")
	const id = "dev_copied"
	here, there := filepath.Join(t.TempDir(), id), filepath.Join(t.TempDir(), id)
	for _, dir := range []string{here, there} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := fence.LockDevice(filepath.Join(there, "lock"), id)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := holder.Of(here); err != nil || h == nil || h.PID != os.Getpid() {
		t.Errorf("%+v, %v", h, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if h, err := holder.Of(here); h != nil || err != nil {
		t.Errorf("afterwards: %+v, %v", h, err)
	}
}
