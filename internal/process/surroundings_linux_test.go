package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCommandHasDescriptorsZeroToTwoOnly(t *testing.T) {
	t.Parallel()
	// One that whoever started us could have left open.
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	c := newControl(t)
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		for _, size := range []int{0, 200_000} {
			s := spec("cd /proc/$$/fd; echo *; : " + strings.Repeat("x", size))
			s.Shell = shell
			out, _, _ := run(t, c, s)
			// 3 is the folder being listed; dash keeps a script it reads open
			// for itself, as 10 and close-on-exec.
			if strings.Replace(out, " 10", "", 1) != "0 1 2 3\n" {
				t.Errorf("%s, %d bytes: descriptors %q", shell, size, out)
			}
			s.Command = "ls /proc/self/fd | tr '\\n' ' '; : " + strings.Repeat("x", size)
			if out, _, _ := run(t, c, s); out != "0 1 2 3 " { // 3 is the folder ls reads
				t.Errorf("%s, %d bytes: a child's descriptors %q", shell, size, out)
			}
		}
	}
}

func TestStdinIsEmptyAndThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	out, _, code := run(t, newControl(t), spec("cat; readlink /proc/self/fd/0; : </dev/tty"))
	if out != "/dev/null\n" || code == 0 {
		t.Errorf("stdout %q, exit code %d of opening the terminal", out, code)
	}
}

func TestCommandIsReadierToBeKilledForMemory(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	ours, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	c := newControl(t)
	for range 2 { // the second meets a supervisor that has done it before
		out, _, _ := run(t, c, spec("cat /proc/self/oom_score_adj"))
		if theirs, _ := strconv.Atoi(strings.TrimSpace(out)); theirs != min(ours+oomScoreStep, 1000) {
			t.Errorf("oom_score_adj is %d, the executor's is %d", theirs, ours)
		}
	}
}

// startedUnder runs a test of this binary with something in its surroundings
// changed by a shell, as whoever starts an executor might.
func startedUnder(t *testing.T, before, test string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", before+` exec "$@"`, "bash", exe, "-test.run=^"+test+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), "PROCESS_TEST_INNER=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", test, err, out)
	}
	return string(out)
}

func onlyInside(t *testing.T) {
	t.Helper()
	if os.Getenv("PROCESS_TEST_INNER") == "" {
		t.Skip("runs inside another test")
	}
}

func TestInnerStatus(t *testing.T) {
	onlyInside(t)
	out, _, _ := run(t, newControl(t), spec("grep -E '^Sig(Blk|Ign)' /proc/self/status; umask; bash -c 'ulimit -Sn; ulimit -Hn; ulimit -c'"))
	fmt.Print(out)
}

func TestSignalsUmaskAndLimitsAreThoseOfTheStart(t *testing.T) {
	t.Parallel()
	out := startedUnder(t, `trap "" HUP INT QUIT PIPE TERM TSTP TTIN TTOU USR1 CHLD 40; umask 027; ulimit -Sn 123; ulimit -Hn 456; ulimit -c 0;`, "TestInnerStatus")
	want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0027\n123\n456\n0\n"
	if !strings.Contains(out, want) {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestInnerBlockedSignals(t *testing.T) {
	onlyInside(t)
	signal.Ignore(unix.SIGHUP, unix.SIGUSR2) // as an executor may do while it runs
	runtime.LockOSThread()                   // a child's mask is that of the thread that forks
	var all unix.Sigset_t
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGCHLD, unix.SIGUSR1} {
		all.Val[0] |= 1 << (sig - 1)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		t.Fatal(err)
	}
	c := newControl(t)
	for range 30 { // on whichever of its threads a helper forks
		out, _, _ := run(t, c, spec("grep -E '^Sig(Blk|Ign)' /proc/self/status"))
		if want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"; out != want {
			t.Fatalf("got %q", out)
		}
	}
}

func TestBlockedSignalsAreUnblocked(t *testing.T) {
	t.Parallel()
	startedUnder(t, "", "TestInnerBlockedSignals")
}

func TestEnvironmentIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	s := spec("env -0 | sort -z | tr '\\0' ' '")
	s.Env = []string{"PATH=/usr/bin:/bin", "A=1", Marker + "=other", "PWD=/other"}
	s.Dir = "/usr/bin"
	out, _, _ := run(t, newControl(t), s)
	if want := "A=1 PATH=/usr/bin:/bin PWD=/usr/bin SEMA_INSTRUCTION_ID=ins_test "; out != want {
		t.Errorf("environment %q, want %q", out, want)
	}
}

func TestLargeCommandRuns(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	for _, shell := range []string{"/bin/bash", "/bin/dash"} {
		for _, size := range []int{maxArgument() - 1, maxArgument(), maxArgument() + 1, 1 << 20, 5 << 20} {
			body := "x() { sha256sum <<'END'\n"
			tail := "\nEND\n}; x; echo \"$0 $# ${0##*/}\"; exit 7"
			text := strings.Repeat("a line of text\n", size/15+1)[:size-len(body)-len(tail)]
			s := spec(body + text + tail)
			s.Shell = shell
			out, errs, code := run(t, c, s)
			sum := sha256.Sum256([]byte(text + "\n"))
			want := hex.EncodeToString(sum[:]) + "  -\n" + shell + " 0 " + filepath.Base(shell) + "\n"
			if out != want || errs != "" || code != 7 {
				t.Errorf("%s, %d bytes: exit %d, stdout %.200q, stderr %.200q", shell, size, code, out, errs)
			}
		}
	}
}

func TestRefusedByBeforeNothingStarts(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	no := errors.New("disk full")
	c, err := New(Config{Before: func(r Recorded) error {
		if r.PID == 0 || r.StartTime == 0 || r.BootID == "" || r.InstructionID != "ins_test" {
			t.Errorf("recorded %+v", r)
		}
		return no
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(context.Background(), spec("touch "+mark)); !errors.Is(err, no) {
		t.Errorf("Start: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran")
	}
	if _, err := c.Start(context.Background(), spec("true")); !errors.Is(err, ErrClosed) {
		t.Errorf("Start after Close: %v", err)
	}
}
