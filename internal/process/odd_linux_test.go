package process

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// oddVariable makes the test binary a process of an unusual kind.
const oddVariable = "PROCESS_TEST_ODD"

func init() {
	be, ok := odd[os.Getenv(oddVariable)]
	if !ok {
		return
	}
	runtime.LockOSThread() // init runs on the first thread
	be()
	sleepForEver()
}

var odd = map[string]func(){
	// Its first thread ends while another goes on: to the kernel its head is a
	// zombie, and it is alive.
	"headless": func() {
		up := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(up)
			sleepForEver()
		}()
		<-up
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	},
	// It has its parent trace it, as programs do which want no debugger, and then
	// gets a signal.
	"traced": func() {
		_, _, _ = syscall.RawSyscall(syscall.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0)
		_ = unix.Kill(os.Getpid(), unix.SIGUSR1)
	},
}

func sleepForEver() {
	for {
		_ = unix.Nanosleep(&unix.Timespec{Sec: 300}, nil)
	}
}

// startOdd starts a command whose shell becomes such a process, and waits until it is.
func startOdd(t *testing.T, kind string, is func(proc) bool) Command {
	t.Helper()
	c := newControl(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := spec("exec '" + self + "'")
	s.Env = append(s.Env, oddVariable+"="+kind)
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cmd.Release)
	shell := cmd.(*command).shell
	eventually(t, 10*time.Second, "a process that is "+kind, func() bool {
		p, err := readProc(shell)
		return err == nil && is(p)
	})
	return cmd
}

func TestAProcessWhoseFirstThreadHasEndedIsEndedToo(t *testing.T) {
	t.Parallel()
	cmd := startOdd(t, "headless", func(p proc) bool { return p.state == 'Z' && p.threads > 1 })
	if err := cmd.End(context.Background(), 0); err != nil {
		t.Errorf("End: %v", err)
	}
}

func TestAShellThatStopsAsATraceeHasNotEnded(t *testing.T) {
	t.Parallel()
	cmd := startOdd(t, "traced", func(p proc) bool { return p.state == 't' })
	if err := cmd.End(context.Background(), 0); err != nil {
		t.Errorf("End: %v", err)
	}
	if cmd.ExitCode() != 137 || cmd.Err() != nil {
		t.Errorf("exit code %d, err %v; it was killed", cmd.ExitCode(), cmd.Err())
	}
}

// TestWhatTheKernelWillNotLetDieIsNamed: a frozen process has its KILL pending and
// does not die. It is not called dead, and once it dies that is noticed.
func TestWhatTheKernelWillNotLetDieIsNamed(t *testing.T) {
	t.Parallel()
	f := newFreezer(t)
	c := newControl(t)
	cmd, _, _ := torture{command: "sleep %[1]s & echo $! > " + f.tasks() + "; wait"}.begin(t, c)
	frozen := f.freeze(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var alive *SurvivorsError
	if err := cmd.End(ctx, 0); !errors.As(err, &alive) || !slices.Equal(alive.PIDs, []int{frozen}) {
		t.Errorf("End: %v, want it to name %d", err, frozen)
	}
	select {
	case <-cmd.Gone():
		t.Error("called gone")
	default:
	}
	f.state(t, "THAWED")
	within(t, 5*time.Second, "its end", cmd.Gone())
}
