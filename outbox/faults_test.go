//go:build faults

package outbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
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
		"outbox: let a result go unacknowledged",
		"outbox: let one chunk more go",
		"outbox: forget what is listed",
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

// What is never given up is held for ever, which TestResultGoesAgainBoundedly sees.
func TestAnOutboxThatNeverGivesUpIsCaught(t *testing.T) {
	defer fault.Set("outbox: never give up")()
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{})
		o.Resume("1", nil, nil)
		o.Open("a").Finish(wire.VoidOutcome{})
		drain(t, o)
		time.Sleep(time.Hour)
		o.Tick(time.Now())
		if o.Unacked() != 1 {
			t.Error("it was given up")
		}
	})
}
