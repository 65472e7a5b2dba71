package simulation

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// playReal plays a schedule on this machine.
func playReal(t *testing.T, s Schedule) {
	player, err := os.Executable()
	if err != nil {
		t.Error(err)
		return
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Error(err)
		return
	}
	r, err := Real(t.Context(), s, dir, player)
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("seed %d: %d executors, %d commands started, settled %v", s.Seed, r.Lives, r.Starts, r.Settled)
	if len(r.Failures) > 0 {
		t.Errorf("seed %d:\n  %s\nreplay: go test ./internal/simulation -run '^TestRealSeed$' -v -seed=%d", s.Seed, strings.Join(r.Failures, "\n  "), s.Seed)
		t.Logf("%s%s", s, strings.Join(r.Trace, "\n"))
	}
}

func TestRealProcessesAndFilesKeepThePromises(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for seed := range uint64(3) {
		s := Generate(seed+1, RealPace)
		all.Go(func() { playReal(t, s) })
		play(t, s) // one schedule is good for both grounds
	}
	all.Wait()
}

// TestRealSeed plays one seed again on this machine.
func TestRealSeed(t *testing.T) { playReal(t, chosen(t, RealPace)) }
