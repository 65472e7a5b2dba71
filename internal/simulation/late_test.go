package simulation

import (
	"strings"
	"testing"
	"time"
)

// A hello that is under way when its socket is given up may reach the server after
// the next one, and then takes the lease from it. The executor must not take itself
// for another one that it has to make room for.
func TestALateHelloDoesNotEndItsOwnExecutor(t *testing.T) {
	s := Schedule{Seed: 3, Config: Config{Heartbeat: 5003 * time.Millisecond, ReconnectGrace: time.Minute, Lease: 45 * time.Second, MaxInflight: 3, FirstGeneration: 1}}
	s.Events = []Event{
		{At: 100*time.Millisecond + 1, Do: Bye},
		{At: 110*time.Millisecond + 1, Do: Delay, N: int64(1500 * time.Millisecond), For: 10 * time.Second},
		// The hello is on its way now, and the machine sleeps and wakes.
		{At: 6200*time.Millisecond + 1, Do: Sleep, For: time.Second},
	}
	trace := strings.Join(play(t, s).Trace, "\n")
	if !strings.Contains(trace, "bye  superseded") {
		t.Errorf("no connection was superseded:\n%s", trace)
	}
}
