// Package scripts holds the scripts that users run to their promises.
package scripts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A stand-in for the program is this test binary with a shell script behind it,
// which begins with this.
const standIn = "\n# stands in for sema\n"

// TestMain runs the script of a stand-in, in its place and with its arguments.
func TestMain(m *testing.M) {
	self, err := os.Executable()
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(self); err == nil {
			// The last one: the constant itself is in every test binary.
			if i := bytes.LastIndex(text, []byte(standIn)); i >= 0 && bytes.HasSuffix(text, []byte("# end\n")) {
				err = syscall.Exec("/bin/sh", append([]string{"sh", "-c", string(text[i:]), "sema"}, os.Args[1:]...), os.Environ())
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// scripted writes a stand-in that does what a script says.
func scripted(t *testing.T, script string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(path, append(text, standIn+script+"\n# end\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// program writes a stand-in for the program, which knows its version.
func program(t *testing.T, version string) string { return scripted(t, "echo "+version) }

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
	if err != nil || strings.Contains(out, "Not on your PATH") || !strings.Contains(out, "  sema device service stop\n  sema device service start\n") {
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

func TestInstallTakesAFolderOfAnyName(t *testing.T) {
	start := t.TempDir()
	script, err := filepath.Abs("install")
	if err != nil {
		t.Fatal(err)
	}
	// Where `cd` would look first, if it were let.
	elsewhere := t.TempDir()
	for _, folder := range []string{"-x", "--", "-", "plain", "a $HOME \"b\" 'c'"} {
		if err := os.MkdirAll(filepath.Join(elsewhere, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(script, "--binary", program(t, "sema v1"), "--to", folder)
		cmd.Dir = start
		cmd.Env = append(os.Environ(), "CDPATH="+elsewhere)
		out, err := cmd.CombinedOutput()
		if err != nil || names(t, filepath.Join(start, folder)) != "sema" || names(t, filepath.Join(elsewhere, folder)) != "" {
			t.Errorf("%q: %v\n%s", folder, err, out)
			continue
		}
		// The line that puts it on the PATH does.
		_, line, _ := strings.Cut(string(out), "\n  export PATH=")
		line, _, _ = strings.Cut(line, "\n")
		said, err := exec.Command("bash", "-c", "export PATH="+line+"; sema").CombinedOutput()
		if err != nil || string(said) != "sema v1\n" {
			t.Errorf("%q: after export PATH=%s: %v, %s", folder, line, err, said)
		}
	}
}

func TestInstallSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	good := program(t, "sema v1")
	for name, c := range map[string]struct {
		args []string
		home string
		says string
	}{
		"a program that says nothing": {[]string{"--binary", "/bin/true", "--to", t.TempDir()}, "/", "/bin/true is not sema"},
		"a program that fails":        {[]string{"--binary", "/bin/false", "--to", t.TempDir()}, "/", "/bin/false is not sema, or not for this machine"},
		"for another machine":         {[]string{"--binary", foreign(t), "--to", t.TempDir()}, "/", "not for this machine: it does not run here ("},
		"a text file":                 {[]string{"--binary", text(t), "--to", t.TempDir()}, "/", "is not a program for this machine"},
		"nothing at all":              {[]string{"--binary", "/dev/null", "--to", t.TempDir()}, "/", "/dev/null is not a file"},
		"another program":             {[]string{"--binary", program(t, "ls 9.1"), "--to", t.TempDir()}, "/", "is not sema"},
		"a folder for a program":      {[]string{"--binary", "/", "--to", t.TempDir()}, "/", "/ is not a file: name the program"},
		"nothing for a program":       {[]string{"--binary", "/not/there", "--to", t.TempDir()}, "/", "/not/there is not there"},
		"a folder nobody can make":    {[]string{"--binary", good, "--to", "/dev/null/bin"}, "/", "cannot write in /dev/null/bin: choose another folder with --to"},
		"a folder nobody can fill":    {[]string{"--binary", good, "--to", "/proc"}, "/", "cannot write in /proc: choose another folder with --to"},
		"a folder in the way":         {[]string{"--binary", good, "--to", taken(t)}, "/", "is a folder: move it away, or choose another folder with --to"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := install(t, c.home, c.args...)
			exit, ok := err.(*exec.ExitError)
			if lines := strings.Count(out, "\n"); lines != 1 && strings.Contains(c.says, " is not ") {
				t.Errorf("%d lines, of which one is ours:\n%s", lines, out)
			}
			if !ok || exit.ExitCode() != 1 || !strings.Contains(out, "install: ") || !strings.Contains(out, c.says) {
				t.Errorf("%v, without %q:\n%s", err, c.says, out)
			}
		})
	}
}

// text is a text that says so if it is run.
func text(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(path, []byte("touch "+path+"-was-run\necho sema v1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(path + "-was-run"); err == nil {
			t.Error("a text was run to be asked whether it is sema")
		}
	})
	return path
}

// foreign is a program for a processor that is none.
func foreign(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "foreign")
	if err := os.WriteFile(path, append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 100)...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// taken is a folder that has a folder where the program would go.
func taken(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sema"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestInstallNamesTheDevicesWhoseServicesCanChangeOver(t *testing.T) {
	folder := t.TempDir()
	several := scripted(t, `case $1 in
version) echo sema v1 ;;
*) echo '[{"deviceId":"dev_1","running":true},{"deviceId":"dev_2","running":false}]' ;;
esac`)
	for range 2 {
		out, err := install(t, "", "--binary", several, "--to", folder)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if again := strings.Contains(out, "former program"); again {
			for _, id := range []string{"dev_1", "dev_2"} {
				if !strings.Contains(out, "  sema device service stop --device "+id+"\n  sema device service start --device "+id+"\n") {
					t.Errorf("nothing of %s:\n%s", id, out)
				}
			}
			return
		}
	}
	t.Error("nothing of changing over")
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
	for _, args := range [][]string{{"./install", "--what"}, {"./install", "--to"}, {"./install", "--to", ""}, {"./install", "--binary", ""}, {"./release"}, {"./release", "1.2.3"}, {"./with-systemd-user"}, {"./with-keyring"},
		{"./fuzz", "-h"}, {"./fuzz", "10"}, {"./soak", "--help"}, {"./soak", "10"}, {"./soak", "10m", "unreal"}, {"./torture", "0"}, {"./torture", "-h"}, {"./variants", "-h"}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "scripts/"+filepath.Base(args[0])) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
