package executor_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// named is a file system whose temporaries have names from the start, so that a
// crash leaves more behind.
type named struct{ posix.System }

func (named) OpenNameless(int, uint32) (int, error) { return -1, unix.EOPNOTSUPP }

// TestKilledInTheMiddleOfAWrite kills executors at random moments of large writes:
// the target is old or new, and nothing is left once the next one serves.
func TestKilledInTheMiddleOfAWrite(t *testing.T) {
	t.Run("nameless temporaries", func(t *testing.T) { killInTheMiddle(t, false) })
	t.Run("named temporaries", func(t *testing.T) { killInTheMiddle(t, true) })
}

func killInTheMiddle(t *testing.T, named bool) {
	size := 8 << 20
	again := 10
	if os.Getenv("SEMA_TORTURE_ROUNDS") != "" {
		size, again = 64<<20, rounds(t, 1)*2
	}
	dir, workspace := workspaceOf(t)
	h := newHost(t, refserver.Config{Takeover: refserver.TakeoverAny, MaxInflight: 4}, workspace)
	content := func(c byte) string { return strings.Repeat(string(c), size) }
	old, next := content('o'), content('n')
	targets := map[string]wire.Kind{
		filepath.Join(workspace, "replaced"): wire.KindWriteFile,
		filepath.Join(workspace, "created"):  wire.KindWriteFileExclusive,
		filepath.Join(workspace, "guarded"):  wire.KindWriteFileGuarded,
		filepath.Join(workspace, "appended"): wire.KindAppendFile,
	}
	kinds := []string{"replaced", "created", "guarded", "appended"}
	start := func() *exec.Cmd {
		return serveIn(t, spec{URL: h.url, Device: h.device, Dir: dir, Workspace: workspace, Named: named})
	}
	x := start()
	typical := 100 * time.Millisecond // what one write takes here, roughly
	struck, littered := 0, 0
	for round := range again {
		activate(t, h.Server, h.device)
		path := filepath.Join(workspace, kinds[round%len(kinds)])
		kind := targets[path]
		_ = os.Remove(path)
		if kind != wire.KindWriteFileExclusive {
			if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		what := put(kind, path, next)
		if kind == wire.KindWriteFileGuarded {
			what.Args = wire.WriteArgs{Path: path, Expect: &wire.Expect{CanonicalPath: path}}
		}
		began := time.Now()
		s, err := h.start(what)
		if err != nil {
			t.Fatal(err)
		}
		moment := time.NewTimer(time.Duration(rand.Int64N(int64(typical) * 5 / 4)))
		select {
		case <-s.Done(): // sooner than it was to be killed
			typical = time.Since(began)
		case <-moment.C:
			struck++
		}
		h.reactivated(t, func() {
			if err := x.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = x.Wait()
			if len(strangers(t, workspace, kinds)) > 0 {
				littered++
			}
			x = start()
		})
		a, err := s.answer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		got := string(b)
		is := got == next
		if kind == wire.KindAppendFile {
			is = got == old+next
		}
		was := got == old
		if kind == wire.KindWriteFileExclusive {
			was = os.IsNotExist(err)
		}
		if _, failed := a.Outcome.(wire.Failure); !is && (!was || !failed) {
			t.Fatalf("round %d: %s answered %+v, the target has %d bytes (%v), neither old nor new", round, kind, a.Outcome, len(got), err)
		}
		if left := strangers(t, workspace, kinds); len(left) > 0 {
			t.Fatalf("round %d: %s: the next start left %q", round, kind, left)
		}
	}
	if struck == 0 || named && littered == 0 {
		t.Errorf("%d writes were struck, %d crashes left something: the test proves nothing", struck, littered)
	}
	h.blameless(t)
}

// strangers are the names in a folder that are not known.
func strangers(t *testing.T, folder string, known []string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
