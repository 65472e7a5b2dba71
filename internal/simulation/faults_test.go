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
	for _, names := range []string{
		"outbox: a new deviceSeq for each retry",
		"outbox: renumber on resume",
		"outbox: forget the fence, fence: keep what is not listed",
		"outbox: stamp an old generation",
		"instructions: run a known id again",

		"outbox: cut anew on resend",
		"outbox: skip a number",
		"outbox: lose what was sent",
		"outbox: result before the chunks",
		"outbox: no exit chunk",
		"outbox: no bounds",
		"outbox: no window",
		"outbox: let a result go unacknowledged",
		"outbox: let one chunk more go",
		"outbox: forget what is listed",
		"link: generationAck does not wait for the fence",
		"link: two generationAcks",
		"link: other generations are heeded",
		"link: a new epoch for each connection",
		"link: what never came is not answered",
		"link: no heartbeat",
		"link: heartbeats name no work",
		"link: no goodbye",
		"link: goodbye without a drain",
		"instructions: a disconnect ends all work",
		"instructions: cancel is not heeded",
		"instructions: timeoutMs is not kept",
		"instructions: a straggler is not answered",
		"instructions: every command succeeded",
		"instructions: both streams are stdout",
		"instructions: what began is called not started",
		"stream: lose a piece",

		"outbox: wait for output's acknowledgement for ever",
		"link: what lost its voice is not answered",
		"link: only the first end of a connection counts",
		"link: a final bye is tried again",
		"instructions: what still dies is not answered",
		"instructions: who came back counts as stuck",
	} {
		t.Run(names, func(t *testing.T) {
			defer fault.Set(strings.Split(names, ",")...)()
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
