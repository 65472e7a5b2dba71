package link_test

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/refserver"
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
func TestTwoHundredExecutorsComeBackSpreadOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd = 200
		server := refserver.New(refserver.Config{MaxPreAuth: crowd})
		n := newMemNet()
		served := make(chan error, 1)
		go func() { served <- server.Serve(n) }()
		start := time.Now()
		backs := make(chan time.Duration, 10*crowd)
		ends := make(chan error, crowd)
		var links []*link.Link
		for i := range crowd {
			seed := byte(i + 1)
			device := addDevice(server, seed)
			out := outbox.New(outbox.Config{})
			l := link.New(link.Config{
				Network:  &network{Dialer: dialer(n), find: discover(n)},
				Identity: identity(device, seed),
				Outbox:   out,
				Work:     &work{outbox: out, seen: map[string]bool{}, lanes: map[string]*outbox.Lane{}, changed: make(chan struct{}, 1)},
				Now:      time.Now,
				Random:   rand.NewChaCha8([32]byte{seed}),
				Log:      slog.New(slog.DiscardHandler),
				OnState: func(s link.State) {
					if s.Phase == link.Fencing {
						backs <- time.Since(start)
					}
				},
			})
			links = append(links, l)
			go func() { ends <- l.Run(t.Context()) }()
		}
		time.Sleep(11 * time.Second) // long enough to count as good
		synctest.Wait()
		if len(backs) != crowd {
			t.Fatalf("%d executors connected at first", len(backs))
		}
		for range crowd {
			<-backs
		}

		start = time.Now()
		n.setRefuse(true)
		n.cutAll()
		time.Sleep(5 * time.Second)
		n.setRefuse(false)
		time.Sleep(15 * time.Second)
		synctest.Wait()

		var at []time.Duration
		for len(backs) > 0 {
			at = append(at, <-backs)
		}
		slices.Sort(at)
		if len(at) != crowd || at[crowd-1] > 14*time.Second {
			t.Errorf("%d came back, the last after %v", len(at), at[len(at)-1])
		}
		most := 0
		for i, first := range at {
			j := i
			for j < len(at) && at[j] < first+100*time.Millisecond {
				j++
			}
			most = max(most, j-i)
		}
		if most > 30 {
			t.Errorf("%d came back within 100 ms", most)
		}
		t.Logf("back between %v and %v, at most %d in 100 ms", at[0], at[len(at)-1], most)

		for _, l := range links {
			go l.Leave("shutdown")
		}
		for range crowd {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}
