package fence_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/fence"
)

// aMachine is a machine of this test's own, with a home for a device and the way to
// the lock in it.
func aMachine(t *testing.T) (temp, lock string) {
	t.Helper()
	temp = t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	return temp, filepath.Join(t.TempDir(), "lock")
}

func refused(t *testing.T, err error, by int) {
	t.Helper()
	if held := (*fence.HeldError)(nil); !errors.As(err, &held) || held.PID != by {
		t.Errorf("a second executor beside process %d: %v", by, err)
	}
}

func unlock(t *testing.T, l *fence.InstanceLock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

func taken(t *testing.T, path, device string) *fence.InstanceLock {
	t.Helper()
	l, err := fence.LockDevice(path, device)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALockWhoseFileWasRemovedIsStillHeld(t *testing.T) {
	_, path := aMachine(t)
	holder, _, kill := another(t, path, "") // with no lock but this one
	for range 2 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if is, pid, err := fence.Probe(path); !is || pid != holder.Process.Pid || err != nil {
			t.Errorf("probe: %t, %d, %v", is, pid, err)
		}
		_, err := fence.Lock(path)
		refused(t, err, holder.Process.Pid)
		// That has made a file of this name, and left it free.
		if is, pid, err := fence.Probe(path); !is || pid != holder.Process.Pid || err != nil {
			t.Errorf("probe: %t, %d, %v", is, pid, err)
		}
	}
	kill()
	l, err := fence.Lock(path)
	if err != nil {
		t.Fatalf("after the crash: %v", err)
	}
	unlock(t, l)
}

func TestACopyOfAFolderIsNotServedBesideTheFirst(t *testing.T) {
	_, path := aMachine(t)
	holder, _, kill := another(t, path, "")
	copied := filepath.Join(t.TempDir(), "copied")
	if err := os.CopyFS(copied, os.DirFS(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	_, err := fence.Lock(filepath.Join(copied, "lock"))
	refused(t, err, holder.Process.Pid)
	kill()
	l, err := fence.Lock(filepath.Join(copied, "lock"))
	if err != nil {
		t.Fatalf("after the first is gone: %v", err)
	}
	unlock(t, l)
}

func TestOnlyAProcessThatLivesHoldsALock(t *testing.T) {
	_, path := aMachine(t)
	record := filepath.Join(filepath.Dir(path), "holder.json")
	holder, _, kill := another(t, path, "")
	written, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	var named map[string]any
	if err := json.Unmarshal(written, &named); err != nil {
		t.Fatal(err)
	}
	but := func(member string, value any) string {
		other := map[string]any{}
		for name, v := range named {
			other[name] = v
		}
		other[member] = value
		text, err := json.Marshal(other)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"another start":  but("startTime", 1),
		"another boot":   but("bootId", "b00t"),
		"no boot":        but("bootId", ""),
		"another number": but("pid", os.Getppid()),
		"no number":      but("pid", 0),
		"a group":        but("pid", -holder.Process.Pid),
		"half of it":     string(written[:len(written)/2]),
		"nothing":        "",
		"our number":     but("pid", os.Getpid()),
	} {
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if is, pid, err := fence.Probe(path); is || err != nil {
			t.Errorf("%s: probe: held by %d, %v", what, pid, err)
		}
		l, err := fence.Lock(path)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		unlock(t, l)
		if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: left after the end: %v", what, err)
		}
	}

	for what, put := range map[string]func() error{
		"a pipe":   func() error { return syscall.Mkfifo(record, 0o600) },
		"a link":   func() error { return os.Symlink("/dev/zero", record) },
		"a folder": func() error { return os.MkdirAll(filepath.Join(record, "full"), 0o700) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if is, pid, err := fence.Probe(path); is || err != nil {
			t.Errorf("%s: probe: held by %d, %v", what, pid, err)
		}
		l, err := fence.Lock(path)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		unlock(t, l)
		if err := os.RemoveAll(record); err != nil {
			t.Fatal(err)
		}
	}

	// A zombie is dead.
	if err := os.WriteFile(record, written, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = fence.Lock(path)
	refused(t, err, holder.Process.Pid)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	defer kill() // reaps it
	deadline := time.Now().Add(10 * time.Second)
	l, err := fence.Lock(path)
	for err != nil && time.Now().Before(deadline) {
		l, err = fence.Lock(path)
	}
	if err != nil {
		t.Fatalf("a zombie holds the lock: %v", err)
	}
	unlock(t, l)
}

func TestADeviceIsLockedOnTheMachineWhereverItsFolderIs(t *testing.T) {
	for _, device := range []string{"dev_01", "../../elsewhere", ".", strings.Repeat("d", 5000), ""} {
		t.Run(fmt.Sprintf("%.20q", device), func(t *testing.T) {
			temp, path := aMachine(t)
			elsewhere := filepath.Join(t.TempDir(), "lock")
			l := taken(t, path, device)
			_, err := fence.LockDevice(elsewhere, device)
			refused(t, err, os.Getpid())
			if is, pid, err := fence.ProbeDevice(elsewhere, device); !is || pid != os.Getpid() || err != nil {
				t.Errorf("probe elsewhere: %t, %d, %v", is, pid, err)
			}
			if _, err := os.Stat(elsewhere); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the refused one left its own lock: %v", err)
			}
			unlock(t, taken(t, elsewhere, "another"))
			unlock(t, l)
			if is, pid, err := fence.ProbeDevice(elsewhere, device); is || pid != 0 || err != nil {
				t.Errorf("probe of a free lock: %t, %d, %v", is, pid, err)
			}
			unlock(t, taken(t, elsewhere, device))
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

func TestACrashFreesTheMachinesLockThoughItsCommandsLive(t *testing.T) {
	temp, path := aMachine(t)
	elsewhere := filepath.Join(t.TempDir(), "lock")
	holder, _, kill := another(t, path, "dev_01")
	_, err := fence.LockDevice(elsewhere, "dev_01")
	refused(t, err, holder.Process.Pid)
	// What the crash leaves goes with any other executor, and nothing else does.
	other := taken(t, elsewhere, "dev_02")
	_, err = fence.LockDevice(filepath.Join(t.TempDir(), "lock"), "dev_01")
	refused(t, err, holder.Process.Pid)
	unlock(t, other)
	kill()
	unlock(t, taken(t, elsewhere, "dev_02"))
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	unlock(t, taken(t, elsewhere, "dev_01"))
}

func TestExecutorsMeetInOneOfTheMachinesFolders(t *testing.T) {
	_, path := aMachine(t)
	runtime := t.TempDir()
	if err := os.Chmod(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "lock")
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	l := taken(t, path, "dev_01") // as a service does
	t.Setenv("XDG_RUNTIME_DIR", "")
	_, err := fence.LockDevice(elsewhere, "dev_01") // as cron does
	refused(t, err, os.Getpid())
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", t.TempDir())
	_, err = fence.LockDevice(elsewhere, "dev_01") // as a shell with a temporary folder of its own does
	refused(t, err, os.Getpid())
	unlock(t, l)
	if left, err := os.ReadDir(runtime); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestTroubleWithTheMachinesFolderIsNoReasonNotToServe(t *testing.T) {
	for what, spoil := range map[string]func(dir string) error{
		"open to all": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"a file":      func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a link":      func(dir string) error { return os.Symlink(filepath.Dir(dir), dir) },
		"nowhere":     func(dir string) error { return os.Remove(filepath.Dir(dir)) },
		"a link for one": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Symlink("/dev/null", filepath.Join(dir, "dev_01.lock")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			temp, path := aMachine(t)
			if err := spoil(filepath.Join(temp, "sema-"+strconv.Itoa(os.Geteuid()))); err != nil {
				t.Fatal(err)
			}
			l := taken(t, path, "dev_01")
			_, err := fence.LockDevice(path, "dev_01")
			refused(t, err, os.Getpid())
			unlock(t, l)
		})
	}
}

func TestAMachinesFolderThatIsSweptHarmsNobody(t *testing.T) {
	temp, path := aMachine(t)
	l := taken(t, path, "dev_01")
	if err := os.RemoveAll(filepath.Join(temp, "sema-"+strconv.Itoa(os.Geteuid()))); err != nil {
		t.Fatal(err)
	}
	_, err := fence.LockDevice(path, "dev_01")
	refused(t, err, os.Getpid())
	other := taken(t, filepath.Join(t.TempDir(), "lock"), "dev_02")
	unlock(t, l)
	unlock(t, other)
	unlock(t, taken(t, path, "dev_01"))
}

// The file goes with its lock, so whoever waits for it must not take one that nobody
// else will ever find.
func TestOfManyAtOnceOneHasTheMachinesLock(t *testing.T) {
	aMachine(t)
	homes := t.TempDir()
	inside := make(chan struct{}, 1)
	done := make(chan error)
	const executors, turns = 8, 30
	for n := range executors {
		go func() {
			path := filepath.Join(homes, strconv.Itoa(n))
			err := os.Mkdir(path, 0o700)
			for i := 0; err == nil && i < turns; {
				l, refusal := fence.LockDevice(filepath.Join(path, "lock"), "dev_01")
				if errors.As(refusal, new(*fence.HeldError)) {
					continue
				}
				if err = refusal; err != nil {
					break
				}
				select {
				case inside <- struct{}{}:
					_, _, err = fence.Probe(path) // takes a moment
					<-inside
				default:
					err = errors.New("two hold the lock of one device")
				}
				err = errors.Join(err, l.Unlock())
				i++
			}
			done <- err
		}()
	}
	for range executors {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestCommandsDoNotInheritTheMachinesLock(t *testing.T) {
	_, path := aMachine(t)
	l := taken(t, path, "dev_01")
	sleep := exec.Command("sleep", "100")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	unlock(t, l)
	unlock(t, taken(t, filepath.Join(t.TempDir(), "lock"), "dev_01"))
}
