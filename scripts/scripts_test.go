// Package scripts holds the scripts that users run to their promises.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program writes a stand-in for the program, which knows its version.
func program(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+version+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func install(t *testing.T, home string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("./install", args...)
	cmd.Env = append(os.Environ(), "HOME="+home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestInstallReplacesInOneStepAndTellsHowToChangeOver(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "the bin")
	out, err := install(t, "", "--binary", program(t, "sema v1"), "--to", folder)
	if err != nil || !strings.Contains(out, "Installed sema v1") || !strings.Contains(out, "Not on your PATH") || strings.Contains(out, "service stop") {
		t.Errorf("first: %v\n%s", err, out)
	}
	installed := filepath.Join(folder, "sema")
	running, err := os.Open(installed)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	out, err = install(t, "", "--binary", program(t, "sema v2"), "--to", folder)
	if err != nil || strings.Contains(out, "Not on your PATH") || !strings.Contains(out, "service stop && sema device service start") {
		t.Errorf("second: %v\n%s", err, out)
	}
	before, err := running.Stat()
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(installed)
	if err != nil || os.SameFile(before, after) || after.Mode().Perm() != 0o755 {
		t.Errorf("the running program was written over, or mode %v (%v)", after.Mode(), err)
	}
	if got := names(t, folder); got != "sema" {
		t.Errorf("the folder has %q", got)
	}
}

func TestInstallKeepsWhatIsThereIfTheNewOneIsNoGood(t *testing.T) {
	folder := t.TempDir()
	if out, err := install(t, "", "--binary", program(t, "sema v1"), "--to", folder); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, bad := range []string{program(t, "another v2"), program(t, "; exit 1"), "/not/there"} {
		if out, err := install(t, "", "--binary", bad, "--to", folder); err == nil {
			t.Errorf("%s was installed:\n%s", bad, out)
		}
	}
	out, err := exec.Command(filepath.Join(folder, "sema")).Output()
	if err != nil || string(out) != "sema v1\n" || names(t, folder) != "sema" {
		t.Errorf("there is %q, %v, in %q", out, err, names(t, folder))
	}
}

func TestInstallPutsItWhereTheUserLooks(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root's place is the machine's")
	}
	home := t.TempDir()
	if out, err := install(t, home, "--binary", program(t, "sema v1")); err != nil || names(t, filepath.Join(home, ".local/bin")) != "sema" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestScriptsRefuseWhatTheyDoNotKnowWithTheirUsage(t *testing.T) {
	for _, args := range [][]string{{"./install", "--what"}, {"./install", "--to"}, {"./release"}, {"./release", "1.2.3"}, {"./with-systemd-user"}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "scripts/"+filepath.Base(args[0])) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
