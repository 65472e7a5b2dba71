package simulation

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// A server that restarted lists nothing, so what runs has to end first.
func TestWhatDiesSlowlyOrNeverDoesNotCostTheConnection(t *testing.T) {
	for reaction, want := range map[Reaction]string{Lingers: "active fenced", Undead: "active fenced_stuck"} {
		s := Schedule{Seed: 1, Config: Config{Heartbeat: 1001 * time.Millisecond, ReconnectGrace: time.Minute, Lease: 10 * time.Second, MaxInflight: 3, FirstGeneration: 1}}
		s.Events = []Event{
			{At: 10*time.Millisecond + 1, Do: DoAsk, Ask: &Ask{Kind: wire.KindExec, Timeout: time.Hour,
				Program: Program{Seed: 2, Term: reaction, Loop: true, Steps: []Step{{After: 50 * time.Millisecond, Stream: 1, Bytes: 10}}}}},
			{At: 5*time.Second + 1, Do: Restart},
			{At: 30*time.Second + 1, Do: Inject},
		}
		trace, _, _ := strings.Cut(strings.Join(play(t, s).Trace, "\n"), " calm\n")
		if !strings.Contains(trace, want+"\n") {
			t.Errorf("%s: never %q", reaction, want)
		}
		if n := strings.Count(trace, "hello "); n != 2 {
			t.Errorf("%s: %d connections, so the fence cost one", reaction, n)
		}
		_, fenced, _ := strings.Cut(trace, "event restart")
		_, fenced, _ = strings.Cut(fenced, "state fencing")
		fenced, _, _ = strings.Cut(fenced, "generationAck")
		if n := strings.Count(fenced, "heartbeat"); n < 4 {
			t.Errorf("%s: %d heartbeats during the fence; it did not outlast three intervals", reaction, n)
		}
	}
}
