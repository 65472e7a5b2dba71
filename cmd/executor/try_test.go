package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// try runs `device try` in a process of its own, in a folder of its own, and
// wants nothing left in the temporary folder.
func (m *machine) try(args ...string) said {
	m.t.Helper()
	temp := m.t.TempDir()
	cmd := m.command(append([]string{"device", "try"}, args...)...)
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	cmd.Dir = m.t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		m.t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
	if _, err := os.Lstat(m.env["SEMA_HOME"]); !os.IsNotExist(err) {
		m.t.Errorf("the trial touched the user's own records: %v", err)
	}
	return said{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestTryKeepsStreamsApartAndPassesTheExitCodeOn(t *testing.T) {
	for command, want := range map[string]said{
		"echo out; echo err >&2; exit 7":        {7, "out\n", "err\n"},
		"true":                                  {0, "", ""},
		`printf 'a\377\000'; printf '\200' >&2`: {0, "a\xff\x00", "\x80"},
		"kill -9 $$":                            {137, "", ""},
		"exit 255":                              {255, "", ""},
		"cat; read x; echo $?":                  {0, "1\n", ""},
		"env | grep -c " + theCredential:        {1, "0\n", ""},
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			if got := newMachine(t).try("--", command); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	if got := newMachine(t).try("--", "echo", "two words", "and more"); got.stdout != "two words and more\n" {
		t.Errorf("several words: %+v", got)
	}
}

func TestTryGivesTheSameDigestTwice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	got := m.try("--", "head -c 10000000 /dev/urandom | tee x | sha256sum >&2; cat x")
	sum := sha256.Sum256([]byte(got.stdout))
	if want, _, _ := strings.Cut(got.stderr, " "); got.code != 0 || len(got.stdout) != 10_000_000 || hex.EncodeToString(sum[:]) != want {
		t.Errorf("exit %d, %d bytes, stderr %q", got.code, len(got.stdout), got.stderr)
	}
}

func TestTryPutsGetsAndLists(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "far away", "remote")
	content := strings.Repeat("\x00\xffline\n", 100_000)
	if err := os.WriteFile(local, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got := m.try("--put", local+":"+remote, "--get", remote, "--ls", filepath.Dir(remote), "--", "rm '"+remote+"'; echo after")
	rest, ok := strings.CutPrefix(got.stdout, content)
	if got.code != 0 || !ok || !strings.Contains(rest, "700000") || !strings.Contains(rest, "remote\n") || !strings.HasSuffix(rest, "after\n") {
		t.Errorf("exit %d, %d bytes, then %q; %s", got.code, len(got.stdout), rest[:min(len(rest), 200)], got.stderr)
	}
	if !strings.Contains(got.stderr, "created "+remote) {
		t.Errorf("stderr: %q", got.stderr)
	}
	if got := m.try("--get", filepath.Join(dir, "missing")); got.code != exitUnexpected || !strings.Contains(got.stderr, "not_found") {
		t.Errorf("a missing file: %+v", got)
	}
}

func TestTryShowsFramesAndNoContent(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	got := m.try("-v", "--", "echo marked-$((3+4)); exit 3")
	if got.code != 3 || got.stdout != "marked-7\n" {
		t.Errorf("%+v", got)
	}
	for _, frame := range []string{"challenge", "hello", "helloAck", "generationAck", "instruction", "chunk", "result", "resultAck", "goodbye"} {
		if !strings.Contains(got.stderr, " "+frame+" ") {
			t.Errorf("no %s in the trace:\n%s", frame, got.stderr)
		}
	}
	if strings.Contains(got.stderr, "marked") || strings.Contains(got.stderr, "bWFya2Vk") {
		t.Errorf("the trace shows content:\n%s", got.stderr)
	}
}

// underway is a trial whose command runs, and has said its pid.
type underway struct {
	*machine
	cmd  *exec.Cmd
	out  io.ReadCloser
	o    *ordered
	temp string
}

// trying starts a trial of a command that says its pid first.
func (m *machine) trying(command string) *underway {
	m.t.Helper()
	u := &underway{machine: m, o: &ordered{}, temp: m.t.TempDir()}
	m.env["TMPDIR"] = u.temp
	u.cmd = m.command("device", "try", "--", command)
	var err error
	if u.out, err = u.cmd.StdoutPipe(); err != nil {
		m.t.Fatal(err)
	}
	if err := u.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	first, err := bufio.NewReader(u.out).ReadString('\n')
	if err != nil {
		m.t.Fatal(err)
	}
	u.o.out.WriteString(first)
	return u
}

// ends waits for the trial's end and wants an exit code, the command dead, and
// nothing left.
func (u *underway) ends(code int) {
	u.t.Helper()
	killed := time.AfterFunc(patienceInTests, func() { _ = u.cmd.Process.Kill() })
	_ = u.cmd.Wait()
	killed.Stop()
	if got := u.cmd.ProcessState.ExitCode(); got != code {
		u.t.Errorf("exit code %d, want %d", got, code)
	}
	dead(u.t, u.o)
	if left, err := os.ReadDir(u.temp); err != nil || len(left) > 0 {
		u.t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}

func TestAnInterruptedTrialEndsItsCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			u := newMachine(t).trying("echo $$; exec sleep 600")
			if err := u.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			u.ends(exitInterrupted)
		})
	}
}

func TestAnInterruptedTrialEndsThoughNobodyReadsIt(t *testing.T) {
	t.Parallel()
	u := newMachine(t).trying("echo $$; exec yes") // of which the first lines are read
	if err := u.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	u.ends(exitInterrupted)
}

func TestATrialInterruptedBeforeItBeganSaysSoByItsCode(t *testing.T) {
	m := newMachine(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	a := &app{
		stdin: m.stdin, stdout: &stdout, stderr: &stderr,
		getenv: func(name string) string { return m.env[name] }, now: m.now, random: rand.Reader,
	}
	err := a.try(ctx, tryFlags{workspace: t.TempDir(), timeout: time.Minute}, "echo ran")
	if code := exitCode(err); code != exitInterrupted || stdout.Len() > 0 {
		t.Errorf("exit code %d (%v), output %q", code, err, stdout.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}

func TestTryRunsNothingButWhatWasTyped(t *testing.T) {
	m := newMachine(t)
	for _, args := range [][]string{{"--", "echo 'a\xff'"}, {"--get", "a\xff"}, {"--ls", "a\xff"}, {"--put", "/dev/null:a\xff"}} {
		if got := m.try(args...); got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "UTF-8") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestATimeTooShortToBeSentIsRefused(t *testing.T) {
	m := newMachine(t)
	if got := m.try("--timeout", "1us", "--", "true"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}

func TestAListingThatNobodyReadsEndsQuietly(t *testing.T) {
	m := newMachine(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	cmd := m.command("device", "try", "--ls", ".")
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cmd.Dir, "entry"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = writer, &stderr
	_ = cmd.Run()
	_ = writer.Close()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) || stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func TestAReaderThatHasSeenEnoughEndsTheTrial(t *testing.T) {
	t.Parallel()
	u := newMachine(t).trying("echo $$; exec yes")
	if err := u.out.Close(); err != nil {
		t.Fatal(err)
	}
	u.ends(128 + int(syscall.SIGPIPE))
}

func TestATrialRunsWhereNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	unwritable := "/proc/sys" // for root, too
	if runtime.GOOS == "darwin" {
		unwritable = "/System"
	}
	m := newMachine(t)
	if got := m.try("--workspace", unwritable, "--", "pwd"); got != (said{0, unwritable + "\n", ""}) {
		t.Errorf("%+v", got)
	}
	got := m.try("--workspace", unwritable, "--put", "/dev/null:x")
	if got.code != exitUnexpected || !strings.Contains(got.stderr, unwritable) {
		t.Errorf("a write: %+v", got)
	}
}
