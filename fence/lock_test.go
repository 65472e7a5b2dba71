package fence_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/sema-agent/device-executor/fence"
)

const (
	holderEnv = "FENCE_TEST_HOLD"
	deviceEnv = "FENCE_TEST_DEVICE" // its lock on the machine is taken as well
)

func TestMain(m *testing.M) {
	if path := os.Getenv(holderEnv); path != "" {
		hold(path)
	}
	os.Exit(m.Run())
}

// hold is the executor that crashes: it takes the lock and forgets it, starts a command that
// outlives it, prints that command's pid and waits for its end.
func hold(path string) {
	var err error
	if device := os.Getenv(deviceEnv); device != "" {
		_, err = fence.LockDevice(path, device)
	} else {
		_, err = fence.Lock(path)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	runtime.GC() // a lock that is forgotten is still held
	runtime.GC()
	sleep := exec.Command("sleep", "100")
	sleep.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sleep.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(sleep.Process.Pid)
	select {}
}

// another starts a process that holds the lock, and of a device, if one is named, the
// machine's. command is what it has running; kill kills it and leaves that.
func another(t *testing.T, path, device string) (holder *exec.Cmd, command int, kill func()) {
	t.Helper()
	holder = exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"="+path, deviceEnv+"="+device)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	command, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("holder: %s", line)
	}
	t.Cleanup(func() { _ = syscall.Kill(command, syscall.SIGKILL) })
	return holder, command, kill
}

func TestCrashFreesTheLockThoughItsCommandsLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder, command, kill := another(t, path, "")

	start := time.Now()
	_, err := fence.Lock(path)
	var held *fence.HeldError
	if !errors.As(err, &held) || held.PID != holder.Process.Pid || held.Path != path {
		t.Fatalf("second instance: %v", err)
	}
	if !strings.Contains(held.Error(), strconv.Itoa(held.PID)) {
		t.Errorf("message %q names no process", held)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("refused only after %v", took)
	}
	if is, pid, err := fence.Probe(path); err != nil || !is || pid != holder.Process.Pid {
		t.Errorf("probe of a held lock: %v, %d, %v", is, pid, err)
	}

	kill()
	l, err := fence.Lock(path)
	if err != nil {
		t.Fatalf("after the crash: %v", err)
	}
	if err := syscall.Kill(command, 0); err != nil {
		t.Fatalf("the command should have outlived its executor: %v", err)
	}
	if is, pid, err := fence.Probe(path); err != nil || !is || pid != os.Getpid() {
		t.Errorf("probe of our own lock: %v, %d, %v", is, pid, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if is, pid, err := fence.Probe(path); err != nil || is || pid != 0 {
		t.Errorf("probe of a free lock: %v, %d, %v", is, pid, err)
	}
}

func TestLockOutlastsAProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	status := flock.New(path)
	if ok, err := status.TryRLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer time.AfterFunc(50*time.Millisecond, func() { _ = status.Unlock() }).Stop()
	l, err := fence.Lock(path)
	if err != nil {
		t.Fatalf("a probe of 50 ms made it fail: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestProbeCreatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if is, pid, err := fence.Probe(path); err != nil || is || pid != 0 {
		t.Errorf("probe of nothing: %v, %d, %v", is, pid, err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the probe: %v", err)
	}
}

func TestLockIsForTheOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := fence.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := fence.Lock(filepath.Join(path, "missing", "lock")); err == nil || errors.As(err, new(*fence.HeldError)) {
		t.Errorf("without a folder: %v", err)
	}
}

func TestUnreadableHolderIsStillAHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := fence.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if err := os.WriteFile(path, []byte("-7 garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = fence.Lock(path)
	var held *fence.HeldError
	if !errors.As(err, &held) || held.PID != 0 {
		t.Fatalf("got %v", err)
	}
}
