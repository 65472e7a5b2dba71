package loginenv

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheLoginShellIsFoundInTheUserDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	const text = "# comment\nshort:line\nroot:x:0:0::/root:/bin/bash\nu:x:1000:1000:U,,,:/home/u:/usr/bin/fish\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{0: "/bin/bash", 1000: "/usr/bin/fish", 7: ""} {
		if got := shellOf(uid, file); got != want {
			t.Errorf("uid %d: %q, want %q", uid, got, want)
		}
	}
	if got := loginShell([]string{"SHELL=/bin/their"}); got != "/bin/their" {
		t.Errorf("SHELL is not believed: %q", got)
	}
}
