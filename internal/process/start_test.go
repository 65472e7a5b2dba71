package process

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newControl(t testing.TB) Control {
	t.Helper()
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func spec(command string) Spec {
	return Spec{InstructionID: "ins_test", Shell: "/bin/sh", Command: command, Env: os.Environ(), Dir: "/"}
}

// run starts a command, waits for its shell and returns what it wrote.
func run(t testing.TB, c Control, s Spec) (stdout, stderr string, code int) {
	t.Helper()
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	defer cmd.Release()
	errs := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(cmd.Stderr())
		errs <- string(b)
	}()
	out, err := io.ReadAll(cmd.Stdout())
	if err != nil {
		t.Fatalf("read stdout: %v", err)
	}
	stderr = <-errs
	within(t, 10*time.Second, "the shell's end", cmd.Exited())
	if err := cmd.Err(); err != nil {
		t.Fatalf("exit code: %v", err)
	}
	return string(out), stderr, cmd.ExitCode()
}

func within(t testing.TB, d time.Duration, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatalf("waited %v for %s", d, what)
	}
}

func TestExitCodeIsTheShells(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	for command, want := range map[string]int{
		"true": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143,
	} {
		if _, _, code := run(t, c, spec(command)); code != want {
			t.Errorf("%q: exit code %d, want %d", command, code, want)
		}
	}
}

func TestOutputComesOnItsOwnPipe(t *testing.T) {
	t.Parallel()
	out, errs, _ := run(t, newControl(t), spec("echo to stdout; echo to stderr >&2"))
	if out != "to stdout\n" || errs != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
}

func TestStartErrorsAreToldApart(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(change func(*Spec)) error {
		s := spec("true")
		change(&s)
		cmd, err := c.Start(context.Background(), s)
		if err == nil {
			cmd.Release()
		}
		return err
	}
	for reason, path := range map[DirReason]string{
		DirNotFound: filepath.Join(dir, "missing"), DirNotDirectory: file,
	} {
		var e *DirError
		if err := start(func(s *Spec) { s.Dir = path }); !errors.As(err, &e) || e.Reason != reason || e.Dir != path {
			t.Errorf("folder %s: %v, want a DirError %s", path, err, reason)
		}
	}
	for _, shell := range []string{filepath.Join(dir, "no-shell"), file, dir} {
		if err := start(func(s *Spec) { s.Shell = shell }); !errors.Is(err, ErrShellUnavailable) {
			t.Errorf("shell %s: %v, want ErrShellUnavailable", shell, err)
		}
	}
	var e *SpawnError
	huge := "HUGE=" + strings.Repeat("x", 2<<20) // Linux refuses it by itself, macOS as part of the whole
	if err := start(func(s *Spec) { s.Env = append(s.Env, huge) }); !errors.As(err, &e) || e.Variable != "HUGE" {
		t.Errorf("huge variable: %v, want a SpawnError that names it", err)
	}
	many := func(s *Spec) {
		for range 100 {
			s.Env = append(s.Env, "A"+strings.Repeat("y", 99_000)+"=z")
		}
		s.Env = append(s.Env, "LARGEST="+strings.Repeat("x", 100_000))
	}
	if err := start(many); !errors.As(err, &e) || e.Variable != "LARGEST" {
		t.Errorf("too many variables: %.200v, want a SpawnError that names the largest", err)
	}
}
