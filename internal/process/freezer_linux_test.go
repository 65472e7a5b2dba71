package process

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// freezer is a control group that holds back every signal of what is in it, as a
// kernel does with a process that is stuck in it.
type freezer string

func newFreezer(t *testing.T) freezer {
	t.Helper()
	f := freezer("/sys/fs/cgroup/freezer/process-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(tokens.Add(1), 10))
	if err := os.Mkdir(string(f), 0o700); err != nil {
		t.Skipf("needs root and a freezer that holds back signals: %v", err)
	}
	t.Cleanup(func() {
		f.state(t, "THAWED")
		eventually(t, 5*time.Second, "an empty freezer", func() bool { return os.Remove(string(f)) == nil })
	})
	return f
}

// tasks is the file that takes in a process by its number.
func (f freezer) tasks() string { return string(f) + "/tasks" }

func (f freezer) state(t *testing.T, s string) {
	t.Helper()
	if err := os.WriteFile(string(f)+"/freezer.state", []byte(s), 0); err != nil {
		t.Error(err)
	}
}

// freeze waits for a process to come and holds it.
func (f freezer) freeze(t *testing.T) (pid int) {
	t.Helper()
	eventually(t, 5*time.Second, "a process in the freezer", func() bool {
		b, err := os.ReadFile(f.tasks())
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && pid > 0
	})
	f.state(t, "FROZEN")
	return pid
}

const freezerVariable = "PROCESS_TEST_FREEZER"

// In a pid namespace of its own: the keeper is for every Recover of this machine.
func TestWhatNoSignalEndsIsNamedByTheNextStartAndHoldsNoHelper(t *testing.T) {
	t.Parallel()
	f := newFreezer(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "/bin/sh", "-c", `"$@"; exit $?`, "sh",
		exe, "-test.run=^TestInnerFrozen$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), "PROCESS_TEST_INNER=1", freezerVariable+"="+string(f))
	cmd.Cancel = func() error {
		f.state(t, "THAWED") // a namespace does not end before all of it has
		return cmd.Process.Kill()
	}
	out, err := cmd.CombinedOutput()
	switch {
	case strings.Contains(string(out), "unshare failed"):
		t.Skipf("no pid namespace here: %s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestInnerFrozen(t *testing.T) {
	onlyInside(t)
	f := freezer(os.Getenv(freezerVariable))
	defer f.state(t, "THAWED")
	executor, r := startHost(t, spec("env -i setsid /bin/sh -c 'echo $$ >"+f.tasks()+"; exec /bin/sleep 300' & sleep 300"))
	frozen := f.freeze(t)
	if err := executor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = executor.Wait()
	var alive *SurvivorsError
	if err := Recover(context.Background(), []Recorded{r}, nil); !errors.As(err, &alive) || !slices.Equal(alive.PIDs, []int{frozen}) {
		t.Errorf("Recover: %v, want it to name %d and nothing else", err, frozen)
	}
	eventually(t, 10*time.Second, "the helpers' end", func() bool { return len(helpersOf(executor.Process.Pid)) == 0 })
	if err := Recover(context.Background(), []Recorded{r}, nil); err != nil {
		t.Errorf("a later Recover: %v, but there is nothing left that it could know", err)
	}
}

func TestClosingNamesWhatWillNotDieAndBlamesNobody(t *testing.T) {
	t.Parallel()
	f := newFreezer(t)
	said := make(chan slog.Record, 10)
	c, err := New(Config{Log: slog.New(heard(said))})
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := c.Start(context.Background(), spec("sleep 300 & echo $! >"+f.tasks()+"; wait"))
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Release()
	frozen := f.freeze(t)
	var alive *SurvivorsError
	if err := c.Close(); !errors.As(err, &alive) || !slices.Equal(alive.PIDs, []int{frozen}) {
		t.Errorf("Close: %v, want it to name %d and nothing else", err, frozen)
	}
	f.state(t, "THAWED")
	eventually(t, 10*time.Second, "its end", func() bool { p, err := readProc(frozen); return err != nil || !p.live() })
	for len(said) > 0 {
		r := <-said
		t.Errorf("the log has %q, and nobody killed anything", r.Message)
	}
}
