//go:build faults

package simulation

import (
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/internal/fault"
)

// TestABrokenExecutorIsCaught shows that the seeds can fail: each of these breaks one
// promise, and is noticed.
func TestABrokenExecutorIsCaught(t *testing.T) {
	for what, names := range map[string][]string{
		"a new deviceSeq for each retry": {"outbox: a new deviceSeq for each retry"},
		"renumber on resume":             {"outbox: renumber on resume"},
		"forget the fence":               {"outbox: forget the fence", "fence: keep what is not listed"},
		"stamp an old generation":        {"outbox: stamp an old generation"},
		"run a duplicate id":             {"instructions: run a known id again"},

		"cut anew on resend":               {"outbox: cut anew on resend"},
		"skip a number":                    {"outbox: skip a number"},
		"lose what was sent":               {"outbox: lose what was sent"},
		"result before the chunks":         {"outbox: result before the chunks"},
		"no exit chunk":                    {"outbox: no exit chunk"},
		"no bounds":                        {"outbox: no bounds"},
		"lose a piece of output":           {"stream: lose a piece"},
		"what began is called not started": {"instructions: what began is called not started"},
	} {
		t.Run(what, func(t *testing.T) {
			defer fault.Set(names...)()
			const enough = 200
			for seed := uint64(1); seed <= enough; seed++ {
				if bad, _ := failures(t, Generate(seed, VirtualPace)); len(bad) > 0 {
					t.Logf("seed %d: %s", seed, strings.Join(bad, "\n"))
					return
				}
			}
			t.Errorf("%d seeds ran clean", enough)
		})
	}
}
