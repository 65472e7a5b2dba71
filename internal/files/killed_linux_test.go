package files_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/files"
)

func init() {
	parts["one step"] = func() {
		if err := oneStep(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Println(err)
		}
	}
}

// oneStep takes a step on the file "f" in a folder's folder "x".
func oneStep(system, face, dir, store string) error {
	l, err := files.New(files.Config{Calls: systems()[system], Journal: inFolder(store), TempDir: dir})
	if err != nil {
		return err
	}
	d, err := l.Draft(dir + "/x/f")
	if err != nil {
		return err
	}
	defer d.Discard()
	if _, err := d.Write([]byte(", new")); err != nil {
		return err
	}
	_, err = faces(dir + "/x/f")[face](context.Background(), d)
	return err
}

// stepped is what a step may leave: all of its content, or what was there before.
func stepped(t *testing.T, when, dir, face string, there bool) {
	t.Helper()
	b, err := os.ReadFile(dir + "/x/f")
	whole := string(b) == ", new"
	if there && face == "append" {
		whole = string(b) == "old, new"
	}
	before := there && string(b) == "old" || !there && os.IsNotExist(err)
	if !whole && !before {
		t.Errorf("%s: %q, %v", when, b, err)
	}
	if i, err := os.Stat(dir + "/x/f"); there && (err != nil || i.Mode() != 0o640) {
		t.Errorf("%s: %v, %v", when, i, err)
	}
	entries, err := os.ReadDir(dir + "/x")
	if err != nil && !os.IsNotExist(err) {
		t.Errorf("%s: %v", when, err)
	}
	for _, e := range entries {
		if e.Name() != "f" {
			t.Errorf("%s: %s was left", when, e.Name())
		}
	}
}

// Not at some moment, but at each: before every call by which a step changes
// something.
func TestKilledBeforeEachCallOfAWrite(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		skip(t, "nobody to kill at a call here: "+err.Error())
	}
	for system := range systems() {
		if system != "all calls" && os.Getenv("SEMA_LONG_TESTS") == "" {
			continue
		}
		for face := range faces("") {
			for _, there := range []bool{true, false} {
				for _, call := range []string{"linkat", "renameat", "renameat2", "unlinkat", "mkdirat", "fchmodat", "fsync", "write", "copy_file_range"} {
					t.Run(fmt.Sprintf("%s, %s, %s, there %v", system, face, call, there), func(t *testing.T) {
						t.Parallel()
						for n := 1; n < 100; n++ {
							dir, store := quick(t), t.TempDir()
							if there {
								must(t, os.Mkdir(dir+"/x", 0o755))
								write(t, dir+"/x/f", "old", 0o640)
							}
							ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
							cmd := exec.CommandContext(ctx, strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace="+call,
								"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n), os.Args[0], system, face, dir, store)
							cmd.Env = append(os.Environ(), partVariable+"=one step", noLinger)
							complaint, err := cmd.CombinedOutput()
							cancel()
							if err != nil && len(complaint) > 0 && !strings.Contains(string(complaint), "illed") {
								t.Skipf("nobody is killed at a call here: %v: %s", err, complaint)
							}
							l := newLayer(t, files.Config{})
							for _, e := range inFolder(store).entries(t) {
								_, err := l.Recover(context.Background(), e)
								must(t, err)
							}
							stepped(t, fmt.Sprintf("before number %d", n), dir, face, there)
							if err == nil {
								return // it came to its end
							}
						}
					})
				}
			}
		}
	}
}
