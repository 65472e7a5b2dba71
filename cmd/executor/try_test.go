package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
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

func TestAnInterruptedTrialEndsItsCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			m := newMachine(t)
			temp := t.TempDir()
			m.env["TMPDIR"] = temp
			cmd := m.command("device", "try", "--", "echo $$; exec sleep 600")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			o := &ordered{}
			first, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			o.out.WriteString(first)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			killed := time.AfterFunc(patienceInTests, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			killed.Stop()
			if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("exit code %d", code)
			}
			dead(t, o)
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left in the temporary folder: %v, %v", left, err)
			}
		})
	}
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
	m := newMachine(t)
	temp := t.TempDir()
	m.env["TMPDIR"] = temp
	cmd := m.command("device", "try", "--", "echo $$; exec yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &ordered{}
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o.out.WriteString(first)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(patienceInTests, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	killed.Stop()
	if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d", code)
	}
	dead(t, o)
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}
