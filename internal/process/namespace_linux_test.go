package process

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// asPID1 runs a test of this binary as the first process of a pid namespace
// with few process numbers.
func asPID1(t *testing.T, test string, numbers int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a pid namespace needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "/bin/sh", "-c",
		fmt.Sprintf(`echo %d > /proc/sys/kernel/pid_max; exec "$@"`, numbers), "sh",
		exe, "-test.run=^"+test+"$", "-test.v", "-test.count=1", fmt.Sprintf("-torture.rounds=%d", *rounds))
	cmd.Env = append(os.Environ(), "PROCESS_TEST_INNER=1")
	out, err := cmd.CombinedOutput()
	switch {
	case strings.Contains(string(out), "unshare failed"):
		t.Skipf("no pid namespace here: %s", out)
	case err != nil:
		t.Fatalf("%s: %v\n%s", test, err, out)
	}
}

// The executor of a container looks dead from outside, where its number is another.
func TestRecoverLeavesTheKeepersOfContainersAlone(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a pid namespace needs root")
	}
	_, token := torture{}.spec(t)
	inner := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "/bin/bash", "-c",
		"exec -a "+keeperName+" /bin/bash")
	inner.Env = []string{"PATH=/usr/bin:/bin", executorVariable + "=1:1"}
	inner.Stdin = strings.NewReader("/bin/sleep " + token + " & wait")
	var complaint strings.Builder
	inner.Stderr = &complaint
	if err := inner.Start(); err != nil {
		t.Skip(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inner.Wait() }()
	defer func() { inner.Process.Kill(); <-ended }()
	nobody := Spec{InstructionID: "ins_of_nobody"}
	eventually(t, 10*time.Second, "the inner keeper, or a refusal", func() bool {
		return len(tokenHolders(nobody, token)) > 0 || len(ended) > 0
	})
	if len(ended) > 0 {
		ended <- <-ended
		t.Skipf("no pid namespace here: %s", complaint.String())
	}
	for _, p := range abandonedKeepers() {
		if tree, _ := descendants(p.pid, nil); slices.ContainsFunc(tree, func(q proc) bool { return slices.Contains(commandLine(q.pid), token) }) {
			t.Errorf("the keeper %d of a container is taken for one whose executor is no more", p.pid)
		}
	}
}

func TestNoZombieIsLeftToPID1(t *testing.T) {
	t.Parallel()
	asPID1(t, "TestInnerOrphans", 32768)
}

func TestInnerOrphans(t *testing.T) {
	onlyInside(t)
	c := newControl(t)
	// Orphans of a command, and of a program of the executor's own.
	run(t, c, spec("i=0; while [ $i -lt 250 ]; do (true &); i=$((i+1)); done; wait"))
	if out, err := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 250 ]; do (true &); i=$((i+1)); done").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, 20*time.Second, "no zombie", func() bool { return len(zombieChildren()) == 0 })
}

func TestRacingCancelsHitNobodyElse(t *testing.T) {
	t.Parallel()
	asPID1(t, "TestInnerRace", 400)
}

// TestInnerRace cancels commands just when they end, where process numbers
// come back within a second or two, while others come and go.
func TestInnerRace(t *testing.T) {
	onlyInside(t)
	commands := 400
	if *rounds > 1 {
		commands = 5000
	}
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				err := exec.Command("/bin/sh", "-c", "(sleep .01; exit 0) & sleep .01; wait $!; exit 9").Run()
				if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 9 {
					t.Errorf("a stranger ended with %v", err)
				}
			}
		})
	}
	race := func(n int) {
		code := n%200 + 1
		cmd, err := c.Start(context.Background(), spec(fmt.Sprintf("(sleep .003 &); echo x; exit %d", code)))
		if err != nil {
			t.Errorf("Start: %v", err)
			return
		}
		defer cmd.Release()
		cancel := time.NewTimer(time.Duration(rand.Int64N(int64(6 * time.Millisecond))))
		defer cancel.Stop()
		cancelled := false
		select {
		case <-cancel.C:
			cancelled = true
		case <-cmd.Gone():
		}
		if err := cmd.End(context.Background(), 50*time.Millisecond); err != nil {
			t.Errorf("End: %v", err)
		}
		if _, err := io.ReadAll(cmd.Stdout()); err != nil {
			t.Errorf("read: %v", err)
		}
		select {
		case <-cmd.Exited():
		default:
			t.Error("gone but not exited")
		}
		if got := cmd.ExitCode(); cmd.Err() != nil || got != code && (!cancelled || got != 143 && got != 137) {
			t.Errorf("exit code %d (cancelled: %v), want %d; %v", got, cancelled, code, cmd.Err())
		}
	}
	for n := range 20 { // get what is kept for later use
		race(n)
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for n := w; n < commands; n += 4 {
				race(n)
			}
		})
	}
	workers.Wait()
	close(stop)
	others.Wait()
	// Three more supervisors may be waiting, with a channel and nothing else.
	eventually(t, 5*time.Second, "goroutines and descriptors as before", func() bool {
		return runtime.NumGoroutine() <= goroutines+2 && openFiles(t) <= files+maxIdle
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, 5*time.Second, "no child", func() bool {
		found, err := descendants(os.Getpid(), nil)
		return err == nil && len(found) == 0 && len(zombieChildren()) == 0
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
