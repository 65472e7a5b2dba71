package link_test

import (
	"testing"
	"time"

	"github.com/sema-agent/device-executor/link"
)

func waits(es []entered) []time.Duration {
	var out []time.Duration
	for _, e := range es {
		out = append(out, e.Wait)
	}
	return out
}

// within reports whether each wait lies between half its ceiling and the whole.
func within(got []time.Duration, ceilings ...time.Duration) bool {
	for i, w := range got {
		c := ceilings[min(i, len(ceilings)-1)]
		if w < c/2 || w > c {
			return false
		}
	}
	return true
}

func TestRetriesToAServerThatIsAwayAreSpacedOut(t *testing.T) {
	simulate(t, options{silent: true}, func(t *testing.T, w *world) {
		w.net.setRefuse(true)
		done := w.run()
		w.wait(10 * time.Minute)
		rests := w.entries(link.BackingOff)
		if len(rests) < 12 || !within(waits(rests), time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 32*time.Second, time.Minute) {
			t.Errorf("waits %v", waits(rests))
		}
		tries := w.entries(link.Connecting)
		for i, s := range rests[:len(rests)-1] {
			if gap := tries[i+1].at - s.at; gap != s.Wait {
				t.Errorf("wait %d was to be %v and took %v", i, s.Wait, gap)
			}
		}
		w.stop()
		<-done
	})
}

func TestAfterAGoodConnectionTheFirstRetryComesWithinASecond(t *testing.T) {
	proofs := map[string]func(w *world){
		"an instruction": func(w *world) { w.exec() },
		"ten seconds":    func(w *world) { w.wait(10 * time.Second) },
	}
	for name, prove := range proofs {
		t.Run(name, func(t *testing.T) {
			simulate(t, options{}, func(t *testing.T, w *world) {
				for range 3 {
					w.active()
					prove(w)
					w.net.cutAll()
					w.wait(time.Second + 10*time.Millisecond)
				}
				rests := w.entries(link.BackingOff)
				if len(rests) != 3 || !within(waits(rests), time.Second) {
					t.Errorf("waits %v", waits(rests))
				}
				if c := rests[0].Cause; c != link.CauseSocketFailed {
					t.Errorf("cause %s", c)
				}
			})
		})
	}
}

func TestAServerThatAcceptsAndDropsIsNotHammered(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		for range 5 {
			w.active()
			w.wait(time.Second)
			w.net.cutAll()
			w.wait(time.Millisecond)
		}
		if got := waits(w.entries(link.BackingOff)); len(got) != 5 || !within(got, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second) {
			t.Errorf("waits %v", got)
		}
	})
}

// A crowd that lost its server together must not come back together.
