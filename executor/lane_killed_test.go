package executor_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// TestKilledInTheMiddleOfAWrite kills executors at random moments of large writes:
// the target is old or new, and nothing is left once the next one serves.
func TestKilledInTheMiddleOfAWrite(t *testing.T) {
	size := 8 << 20
	again := 20
	if os.Getenv("SEMA_TORTURE_ROUNDS") != "" {
		size, again = 64<<20, rounds(t, 1)*4
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
	x := child(t, h, dir, workspace)
	typical := 100 * time.Millisecond // what one write takes here, roughly
	struck := 0
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
		connections := h.State(h.device).Connections
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
		if err := x.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = x.Wait()
		x = child(t, h, dir, workspace)
		err = h.WaitFor(t.Context(), h.device, func(s refserver.DeviceState) bool { return s.Active && s.Connections > connections })
		if err != nil {
			t.Fatal(err)
		}
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
		h.tidy(t, workspace, fmt.Sprintf("round %d: %s", round, kind), kinds)
	}
	if struck == 0 {
		t.Error("no write was ever struck")
	}
	h.blameless(t)
}

// tidy fails the test for every name in a folder but those it knows.
func (h *host) tidy(t *testing.T, folder, when string, known []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+e.Name()+" ") {
			t.Errorf("%s: %s was left behind", when, e.Name())
		}
	}
}
