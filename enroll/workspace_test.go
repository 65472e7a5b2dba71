package enroll_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/wire"
)

// deep makes a folder whose real path has exactly n bytes.
func deep(t *testing.T, n int) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for len(dir) < n {
		step := min(n-len(dir)-1, 200)
		if rest := n - len(dir) - 1 - step; rest == 1 {
			step-- // no room for a name after the next separator
		}
		dir = filepath.Join(dir, strings.Repeat("w", step))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil || len(dir) != n {
		t.Fatalf("%d bytes, %v", len(dir), err)
	}
	return dir
}

func TestWorkspacesAreRealFolders(t *testing.T) {
	platform := wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "1"}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	inner := filepath.Join(dir, "inner ünï\nx")
	for _, err := range []error{os.WriteFile(file, nil, 0o600), os.Mkdir(inner, 0o755), os.Symlink(inner, link), os.Symlink("nowhere", dangling)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for asked, want := range map[string]string{
		"": dir, ".": dir, dir: dir, dir + "/": dir, dir + "/inner ünï\nx/../": dir, "link": inner, inner: inner, "/": "/",
	} {
		if got, err := enroll.CheckWorkspace(asked, platform, nil); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", asked, got, err, want)
		}
	}
	for asked, word := range map[string]string{file: "not a folder", dangling: "no such file", "missing": "no such file"} {
		if _, err := enroll.CheckWorkspace(asked, platform, nil); enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", asked, err)
		}
	}
}

func TestWorkspacesAreBoundedByTheProtocol(t *testing.T) {
	platform := wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "1"}
	if _, err := enroll.CheckWorkspace(deep(t, 1024), platform, nil); err != nil {
		t.Errorf("1024 bytes: %v", err)
	}
	if _, err := enroll.CheckWorkspace(deep(t, 1025), platform, nil); enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), "1025") {
		t.Errorf("1025 bytes: %v", err)
	}
	long := t.TempDir()
	for range 4 { // 1,000 bytes that JSON writes as 6,000
		long = filepath.Join(long, strings.Repeat("\x01", 200))
	}
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := enroll.CheckWorkspace(long, platform, nil); enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), "hello") {
		t.Errorf("a root that a hello cannot carry: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "\xff")
	if err := os.Mkdir(bad, 0o755); err != nil {
		t.Skipf("this file system takes no such name: %v", err)
	}
	if _, err := enroll.CheckWorkspace(bad, platform, nil); enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("not UTF-8: %v", err)
	}
}

func TestDisplayNamesAreCutBetweenCharacters(t *testing.T) {
	for name, want := range map[string]string{
		"laptop":                       "laptop",
		"a\xffb":                       "ab",
		strings.Repeat("é", 128):       strings.Repeat("é", 127),
		strings.Repeat("n", 255) + "x": strings.Repeat("n", 255),
	} {
		if got := enroll.DisplayName(name); got != want || !utf8.ValidString(got) {
			t.Errorf("%q became %q", name, got)
		}
	}
}
