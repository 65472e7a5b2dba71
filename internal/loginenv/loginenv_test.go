package loginenv

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// home makes a home folder with a profile that every POSIX login shell reads.
func home(t *testing.T, profile string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".profile"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"HOME=" + dir, "PATH=/usr/bin:/bin", "PWD=/kept", "FROM_THE_EXECUTOR=yes"}
}

func shells(t *testing.T) []string {
	var found []string
	for _, s := range []string{"bash", "dash", "ksh", "zsh", "sh"} {
		if path, err := exec.LookPath(s); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		t.Fatal("this machine has no shell")
	}
	return found
}

func TestTheProfilesVariablesArrive(t *testing.T) {
	profiles := map[string]string{
		"plain":              `export FOUND='a b'`,
		"of many lines":      "export FOUND='a b' LINES_OF='one\ntwo=three\n'",
		"noisy":              "echo noise; echo noise >&2; export FOUND='a b'; printf 'FOUND=wrong\\0'",
		"asking":             "read answer; export FOUND='a b'; read answer",
		"asking the tty":     "{ read answer </dev/tty; } 2>/dev/null; export FOUND='a b'",
		"with a stray child": "export FOUND='a b'; sleep 20 &",
		"failing":            "export FOUND='a b'; false; nonexistent-command 2>/dev/null",
		"execs a shell":      "export FOUND='a b'; exec /bin/sh",
		"reads and execs":    "read answer; export FOUND='a b'; exec /bin/sh",
		"closes descriptors": "exec 3>&- 4>&- 5>&-; export FOUND='a b'",
		"without any PATH":   "export FOUND='a b'; PATH=",
		"with large values":  "export FOUND='a b' LARGE=$(head -c 100000 /dev/zero | tr '\\0' x)",
	}
	for _, shell := range shells(t) {
		for name, profile := range profiles {
			t.Run(filepath.Base(shell)+", "+name, func(t *testing.T) {
				t.Parallel()
				if filepath.Base(shell) == "zsh" {
					t.Skip("zsh reads other profiles")
				}
				var log bytes.Buffer
				env := home(t, profile)
				got := Resolve(t.Context(), Config{Mode: Login, Shell: shell, Inherited: env, Log: slog.New(slog.NewTextHandler(&log, nil))})
				for _, want := range []string{"FOUND=a b", "FROM_THE_EXECUTOR=yes", "PWD=/kept"} {
					if !slices.Contains(got, want) {
						t.Errorf("%s is missing in %.500q; log: %s", want, got, log.String())
					}
				}
				for _, v := range got {
					if strings.HasPrefix(v, "_=") || strings.HasPrefix(v, "SHLVL=") {
						t.Errorf("%s is the shell's own", v)
					}
				}
				if name == "of many lines" && !slices.Contains(got, "LINES_OF=one\ntwo=three\n") {
					t.Errorf("the lines are gone: %q", got)
				}
				if strings.Contains(log.String(), "WARN") {
					t.Errorf("log: %s", log.String())
				}
			})
		}
	}
}

func TestABrokenProfileCostsAWarningAndFewSeconds(t *testing.T) {
	profiles := map[string]string{
		"ends":                  "exit 3",
		"hangs":                 "sleep 1000",
		"loops":                 "while :; do :; done",
		"ignores signals":       `trap "" TERM INT HUP; while :; do sleep 1; done`,
		"execs a non-shell":     "exec sleep 1000",
		"execs itself for ever": "exec bash -l",
		"eats all questions":    "cat >/dev/null; exit",
		"closes the answer":     "exec 9>&-; exec 1>&-",
		"floods the answer":     "while :; do echo x=$RANDOM$RANDOM$RANDOM$RANDOM >&9; done",
	}
	for name, profile := range profiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			env := home(t, profile)
			ctx := t.Context()
			if name != "hangs" { // one of them has to prove the real bound
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			start := time.Now()
			got := Resolve(ctx, Config{Mode: Login, Shell: "/bin/bash", Inherited: env, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if !slices.Equal(got, env) {
				t.Errorf("got %q, want what was inherited", got)
			}
			if took := time.Since(start); took > timeout+farewell+5*time.Second {
				t.Errorf("took %v", took)
			}
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "shell=/bin/bash") {
				t.Errorf("log %q, want a warning that names the shell", log.String())
			}
		})
	}
}

func TestWhatIsNoLoginShellIsAWarning(t *testing.T) {
	for _, shell := range []string{"/bin/false", "/nonexistent", "/bin/cat", "/dev/null"} {
		var log bytes.Buffer
		env := home(t, "")
		if got := Resolve(t.Context(), Config{Mode: Login, Shell: shell, Inherited: env, Log: slog.New(slog.NewTextHandler(&log, nil))}); !slices.Equal(got, env) {
			t.Errorf("%s: got %q", shell, got)
		}
		if !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%s: log %q", shell, log.String())
		}
	}
}

func TestAShellThatTimedOutIsDead(t *testing.T) {
	env := home(t, `echo $$ >"$HOME/pid"; trap "" TERM; while :; do sleep 1; done`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := ask(ctx, "/bin/bash", env); err == nil {
		t.Fatal("an answer from a profile that gives none")
	}
	text, err := os.ReadFile(filepath.Join(lookup(env, "HOME"), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	// It was waited for, so not even a zombie is left.
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("pid %d: %v", pid, err)
	}
}

func TestInheritAsksNobody(t *testing.T) {
	env := home(t, `echo asked >"$HOME/asked"`)
	modes := []Mode{Inherit}
	if !underServiceManager() {
		modes = append(modes, Auto)
	}
	for _, mode := range modes {
		if got := Resolve(t.Context(), Config{Mode: mode, Shell: "/bin/sh", Inherited: env}); !slices.Equal(got, env) {
			t.Errorf("%s: %q", mode, got)
		}
	}
	if _, err := os.Stat(filepath.Join(lookup(env, "HOME"), "asked")); err == nil {
		t.Error("the login shell was asked")
	}
}

func TestParseMode(t *testing.T) {
	for _, s := range []string{"inherit", "login", "auto"} {
		if m, err := ParseMode(s); err != nil || string(m) != s {
			t.Errorf("ParseMode(%q) = %q, %v", s, m, err)
		}
	}
	for _, s := range []string{"", "Login", "shell"} {
		if _, err := ParseMode(s); err == nil || !strings.Contains(err.Error(), "inherit, login or auto") {
			t.Errorf("ParseMode(%q): %v", s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("A=1\x00B=two\nlines\x00\n"))
	f.Add([]byte("=\x00A\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		vars, err := parse(text)
		if (err == nil) != (len(vars) > 0) {
			t.Fatalf("%d variables and %v", len(vars), err)
		}
		for _, v := range vars {
			if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.Contains(v, "\x00") {
				t.Fatalf("no process can be given %q", v)
			}
		}
	})
}
