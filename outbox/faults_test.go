//go:build faults

package outbox_test

import (
	"testing"

	"github.com/sema-agent/device-executor/internal/fault"
)

// TestBrokenOutboxesAreCaught shows that the schedule test can fail.
func TestBrokenOutboxesAreCaught(t *testing.T) {
	for _, name := range []string{
		"outbox: a new deviceSeq for each retry",
		"outbox: renumber on resume",
		"outbox: forget the fence",
		"outbox: stamp an old generation",
		"outbox: cut anew on resend",
		"outbox: no exit chunk",
		"outbox: result before the chunks",
		"outbox: no window",
		"outbox: no bounds",
		"outbox: never send again",
		"outbox: lose what was sent",
		"outbox: skip a number",
	} {
		t.Run(name, func(t *testing.T) {
			defer fault.Set(name)()
			for seed := range uint64(200) {
				if err := simulate(t, seed, 250); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("200 seeds ran clean")
		})
	}
}
