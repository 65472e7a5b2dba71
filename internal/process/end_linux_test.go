package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestShellsEndIsNotThePipesEnd(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	s := spec("sleep 300 & echo hi")
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Release()
	within(t, 5*time.Second, "the shell's end", cmd.Exited())
	if n := cmd.Leftovers(); n != 1 {
		t.Errorf("%d leftovers, want the sleeper", n)
	}
	b := make([]byte, 100)
	if n, err := cmd.Stdout().ReadAvailable(b); string(b[:n]) != "hi\n" || err != nil {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if _, err := cmd.Stdout().ReadAvailable(b); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("read of a held pipe: %v", err)
	}
	if err := cmd.Stdout().SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.Stdout().Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read with a deadline: %v", err)
	}
	if err := cmd.End(context.Background(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.Stdout().ReadAvailable(b); !errors.Is(err, io.EOF) {
		t.Errorf("read after the end: %v", err)
	}
	if cmd.ExitCode() != 0 || cmd.Ended() != 1 || cmd.Leftovers() != 0 {
		t.Errorf("exit code %d, ended %d, leftovers %d", cmd.ExitCode(), cmd.Ended(), cmd.Leftovers())
	}
}

func TestEndLetsAShellSayGoodbye(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	for _, command := range []string{
		"trap 'echo bye; exit 7' TERM; echo up; sleep 99 & wait",
		"trap 'echo bye; exit 7' TERM; echo up; kill -STOP $$; sleep 99 & wait",
	} {
		cmd, err := c.Start(context.Background(), spec(command))
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Release()
		b := make([]byte, 3)
		if _, err := io.ReadFull(cmd.Stdout(), b); err != nil {
			t.Fatal(err)
		}
		if err := cmd.End(context.Background(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(cmd.Stdout())
		if string(out) != "bye\n" || cmd.ExitCode() != 7 {
			t.Errorf("%s: said %q, exit code %d", command, out, cmd.ExitCode())
		}
	}
}

func TestCommandThatKillsItsSupervisorIsReportedHonestly(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	for range 10 {
		cmd, err := c.Start(context.Background(), spec("kill -9 $PPID; sleep 300"))
		if errors.Is(err, ErrLost) {
			continue // before it could report the start
		}
		if err != nil {
			t.Fatal(err)
		}
		within(t, 10*time.Second, "the end of all of it", cmd.Gone())
		if cmd.ExitCode() != 137 || cmd.Err() != nil {
			t.Errorf("exit code %d, err %v; it was killed", cmd.ExitCode(), cmd.Err())
		}
		cmd.Release()
	}
	if _, _, code := run(t, c, spec("exit 3")); code != 3 {
		t.Errorf("the next command's exit code is %d", code)
	}
}

func TestCommandsGoOnAfterTheKeeperWasKilled(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	cmd, err := c.Start(context.Background(), spec("read -r _ < "+"/dev/null; sleep 1; exit 5"))
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Release()
	k := c.(*control).keeper
	if err := k.process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the keeper's end", k.gone)
	if _, _, code := run(t, c, spec("exit 4")); code != 4 {
		t.Errorf("a new command's exit code is %d", code)
	}
	within(t, 10*time.Second, "the old command's end", cmd.Exited())
	if cmd.ExitCode() != 5 {
		t.Errorf("the old command's exit code is %d", cmd.ExitCode())
	}
}

// Between two commands too: the next one is not to find out.
func TestAKilledKeeperIsReplacedAndSpokenOfAtOnce(t *testing.T) {
	t.Parallel()
	said := make(chan slog.Record, 10)
	c, err := New(Config{Log: slog.New(heard(said))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	keeper := func() *keeperLink {
		c := c.(*control)
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.keeper
	}
	first := keeper()
	if err := first.process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "another keeper", func() bool { return keeper() != first })
	if r := <-said; !strings.Contains(r.Message, "the keeper process was killed") {
		t.Errorf("the log has %q", r.Message)
	}
}

// heard passes on what is logged.
type heard chan<- slog.Record

func (h heard) Enabled(context.Context, slog.Level) bool      { return true }
func (h heard) Handle(_ context.Context, r slog.Record) error { h <- r; return nil }
func (h heard) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h heard) WithGroup(string) slog.Handler                 { return h }

func TestASupervisorWithoutItsKeeperGetsNoOtherCommand(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	awaitStandby(t, c)
	k := c.(*control).keeper
	if err := k.process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the keeper's end", k.gone)
	cmd, err := c.Start(context.Background(), spec("exit 4"))
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Release()
	if cmd.(*command).link.keeper == k {
		t.Error("the command runs under a supervisor that has no keeper")
	}
}

func TestWhatAKilledSupervisorLeftEndsThoughTheKeeperIsTraced(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	cmd, s, token := hidden.begin(t, c)
	l := cmd.(*command).link
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	threads := fmt.Sprintf("/proc/%d/task/", l.keeper.pid)
	tasks, err := os.ReadDir(threads)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if err := syscall.PtraceAttach(tid); err != nil {
			t.Skipf("nobody may trace here: %v", err)
		}
		defer func() { _ = syscall.PtraceDetach(tid) }()
		eventually(t, 5*time.Second, "the keeper's stop", func() bool {
			b, err := os.ReadFile(threads + task.Name() + "/stat")
			return err == nil && strings.Contains(string(b), ") t ")
		})
	}
	if err := syscall.Kill(l.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 8*time.Second, "the end of every process", func() bool { return len(tokenHolders(s, token)) == 0 })
}

// A supervisor serves one command after another: an order that comes late must
// not reach the next one.
func TestLateEndDoesNotReachTheNextCommand(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	first, err := c.Start(context.Background(), spec("true"))
	if err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the first command's end", first.Gone())
	shared := false
	var next []Command
	for range maxIdle + 1 {
		cmd, err := c.Start(context.Background(), spec("sleep .3; exit 6"))
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Release()
		next = append(next, cmd)
		shared = shared || cmd.(*command).link == first.(*command).link
	}
	if !shared {
		t.Fatal("the first command's supervisor was not used again")
	}
	if err := first.End(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	first.Release()
	for _, cmd := range next {
		within(t, 5*time.Second, "a later command's end", cmd.Exited())
		if cmd.ExitCode() != 6 {
			t.Errorf("a later command's exit code is %d", cmd.ExitCode())
		}
	}
}

func TestNothingStaysBehindACommand(t *testing.T) {
	t.Parallel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := spec("echo $$ > " + pidFile + "; (setsid sleep 300 &) ; sleep 300")
	if _, err := c.Start(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	var shell int
	eventually(t, 5*time.Second, "the shell", func() bool {
		b, _ := os.ReadFile(pidFile)
		shell, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return shell > 0
	})
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := readProc(shell); err == nil {
		t.Error("the shell is still there after Close")
	}
}

// A command may hobble its supervisor, which then cannot look for what to end.
func TestASupervisorThatMayOpenNoFileIsHelped(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	x := hidden
	x.command = "prlimit --pid $PPID --nofile=3:3 || exit 9; " + x.command
	cmd, s, token := x.begin(t, c)
	if err := cmd.End(context.Background(), 0); err != nil {
		t.Errorf("End: %v", err)
	}
	if left := tokenHolders(s, token); len(left) > 0 {
		t.Errorf("called dead while %v are alive", left)
	}
}

func TestWhatACommandDoesToItsSupervisorIsNotForTheNext(t *testing.T) {
	t.Parallel()
	const look = "ulimit -c; ulimit -n; nice; cat /proc/self/oom_score_adj"
	for _, change := range []string{
		"prlimit --pid $PPID --core=51200:51200", "renice -n 7 -p $PPID", "prlimit --pid $PPID --nofile=99:99",
		"echo 777 > /proc/$PPID/oom_score_adj", "prlimit --pid $PPID --nofile=3:3",
	} {
		c := newControl(t)
		before, _, _ := run(t, c, spec(look))
		cmd, err := c.Start(context.Background(), spec(change))
		if err != nil {
			t.Fatal(err)
		}
		within(t, 10*time.Second, "the command's end", cmd.Gone())
		if cmd.ExitCode() != 0 {
			t.Errorf("%s: exit code %d", change, cmd.ExitCode())
		}
		cmd.Release()
		for range maxIdle {
			if after, _, _ := run(t, c, spec(look)); after != before {
				t.Errorf("after %s: %q, before it %q", change, after, before)
				break
			}
		}
	}
}
