package instructions

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNoSecretReachesACommand(t *testing.T) {
	env := []string{
		"SEMA_CREDENTIAL=x", "SEMA_ENROLL_TOKEN=x", "SEMA_API_KEY=x", "SEMA_CLIENT_SECRET=x", "SEMA_PASSWORD=x",
		"SEMA_HOME=/h", "SEMA_SERVER=https://s", "TOKEN=theirs", "SEMAPHORE_TOKEN=theirs", "PATH=/bin", "SEMA_MONKEY=m",
	}
	want := env[5:]
	if got := WithoutSecrets(env); !slices.Equal(got, want) {
		t.Errorf("WithoutSecrets = %v, want %v", got, want)
	}
}

func TestShellEnvWinsOverTheExecutorsOwn(t *testing.T) {
	got, err := merge([]string{"A=1", "B=2", "A=3", "C"}, map[string]string{"A": "new", "Z": "a=b", "E": ""})
	want := []string{"B=2", "C", "A=new", "E=", "Z=a=b"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("merge = %q, %v; want %q", got, err, want)
	}
}

func TestFindShell(t *testing.T) {
	dir := t.TempDir()
	bash := filepath.Join(dir, "bash")
	if err := os.WriteFile(bash, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := FindShell(bash, nil); got != bash || err != nil {
		t.Errorf("the chosen shell: %q, %v", got, err)
	}
	t.Chdir(dir)
	if got, err := FindShell("./bash", nil); err != nil || !filepath.IsAbs(got) {
		t.Errorf("a relative path: %q, %v; want an absolute one", got, err)
	}
	for _, bad := range []string{filepath.Join(dir, "missing"), dir, plain} {
		if got, err := FindShell(bad, nil); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("FindShell(%q) = %q, %v; want an error that names it", bad, got, err)
		}
	}
	env := []string{"PATH=relative::" + dir}
	if got, err := FindShell("bash", env); got != bash || err != nil {
		t.Errorf("a bare name: %q, %v; want %q", got, err, bash)
	}
	if got, err := FindShell("plain", env); err == nil {
		t.Errorf("a file that cannot be run: %q", got)
	}
	want := bash
	if executable("/bin/bash") == nil {
		want = "/bin/bash"
	}
	if got, err := FindShell("", env); got != want || err != nil {
		t.Errorf("FindShell = %q, %v; want %q", got, err, want)
	}
}
