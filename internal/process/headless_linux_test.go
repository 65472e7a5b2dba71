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

// headlessVariable makes the test binary a process whose first thread ends while
// another goes on: to the kernel its head is a zombie, and it is alive.
const headlessVariable = "PROCESS_TEST_HEADLESS"

func init() {
	if os.Getenv(headlessVariable) == "" {
		return
	}
	runtime.LockOSThread() // init runs on the first thread
	up := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(up)
		for {
			_ = unix.Nanosleep(&unix.Timespec{Sec: 300}, nil)
		}
	}()
	<-up
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestAProcessWhoseFirstThreadHasEndedIsEndedToo(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := spec("exec '" + self + "'")
	s.Env = append(s.Env, headlessVariable+"=1")
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Release()
	shell := cmd.(*command).shell
	eventually(t, 10*time.Second, "the first thread's end", func() bool {
		p, err := readProc(shell)
		return err == nil && p.state == 'Z' && p.threads > 1
	})
	if err := cmd.End(context.Background(), 0); err != nil {
		t.Errorf("End: %v", err)
	}
}
