package process

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tracedVariable makes the test binary a process that has its parent trace it, as
// programs do which want no debugger, and that then gets a signal.
const tracedVariable = "PROCESS_TEST_TRACED"

func init() {
	if os.Getenv(tracedVariable) == "" {
		return
	}
	runtime.LockOSThread() // init runs on the first thread
	_, _, _ = syscall.RawSyscall(syscall.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
	_ = unix.Kill(os.Getpid(), unix.SIGUSR1)
	for {
		_ = unix.Nanosleep(&unix.Timespec{Sec: 300}, nil)
	}
}

func TestAShellThatStopsAsATraceeHasNotEnded(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := spec("exec '" + self + "'")
	s.Env = append(s.Env, tracedVariable+"=1")
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Release()
	shell := cmd.(*command).shell
	eventually(t, 10*time.Second, "the stop", func() bool {
		p, err := readProc(shell)
		return err == nil && p.state == 't'
	})
	if err := cmd.End(context.Background(), 0); err != nil {
		t.Errorf("End: %v", err)
	}
	if cmd.ExitCode() != 137 || cmd.Err() != nil {
		t.Errorf("exit code %d, err %v; it was killed", cmd.ExitCode(), cmd.Err())
	}
}
