package enroll_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/wire"
)

func TestAWorkspaceIsSpelledAsOnTheDisk(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, "Caf\u00e9")
	if err := os.Mkdir(want, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Caf\u00e9", "CAF\u00c9", "caf\u00e9", "Cafe\u0301"} {
		asked := filepath.Join(dir, name)
		if _, err := os.Stat(asked); err != nil {
			t.Logf("%q is another name on this file system", name)
			continue
		}
		if got, err := enroll.CheckWorkspace(asked, wire.Platform{OS: "darwin"}, nil); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", asked, got, err, want)
		}
	}
}
