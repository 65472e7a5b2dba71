//go:build faults

package instructions

import (
	"testing"
	"testing/synctest"

	"github.com/sema-agent/device-executor/internal/fault"
)

// TestABrokenDispatcherIsCaught shows that the schedule test can fail.
func TestABrokenDispatcherIsCaught(t *testing.T) {
	for _, name := range []string{
		"instructions: run a known id again",
		"instructions: what began is called not started",
	} {
		t.Run(name, func(t *testing.T) {
			defer fault.Set(name)()
			for seed := range uint64(200) {
				var err error
				synctest.Test(t, func(t *testing.T) { err = races(t, seed) })
				if err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("200 seeds ran clean")
		})
	}
}
