package simulation

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

const floods = 8

// withheld is the configuration of a server that many floods come to.
var withheld = Config{Heartbeat: 503 * time.Millisecond, ReconnectGrace: time.Minute, Lease: 20 * time.Second, MaxInflight: floods + 2, FirstGeneration: 1}

func TestAcksWithheldFromEightFloodsHoldNothingElseUp(t *testing.T) {
	t.Parallel()
	w := onThisMachine(t, withheld)
	withhold(t, w, sizeOfPatience*time.Second, w.judge.look)
}

// In virtual time a second is one, and the floods together reach the bound over all.
func TestAcksWithheldInVirtualTimeHoldNothingElseUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := withheld
		c.TotalBytes = 2 << 20
		w := newWorld(t.Context(), Schedule{Seed: 11, Config: c}, newMadeUp(11))
		withhold(t, w, time.Second, w.judge.look)
	})
}

// withhold has eight commands print without end, and nobody acknowledges anything for
// a while. look is called when nothing moves any more.
func withhold(t *testing.T, w *World, patience time.Duration, look func()) {
	var mu sync.Mutex
	delivered := make([]int64, floods)
	snapshot := func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(delivered)
	}
	r := w.playWith(func() {
		if err := w.server.WaitActive(t.Context(), w.device); err != nil {
			t.Error(err)
			return
		}
		ask := func(p Program, deliver func(n int)) *refserver.Call {
			a := &Ask{Kind: wire.KindExecStream, Timeout: 10 * time.Minute, Program: p}
			call, err := w.server.Dispatch(t.Context(), w.device, refserver.Dispatch{Kind: a.Kind, Args: wire.ExecArgs{Command: p.command()},
				TimeoutMs: a.Timeout.Milliseconds(), Deliver: func(_ wire.ChunkKind, data []byte) error { deliver(len(data)); return nil }})
			if err != nil {
				panic(err) // it is active, and its kind declared
			}
			w.judge.given(call.ID(), a, false)
			return call
		}
		var calls []*refserver.Call
		for i := range floods {
			calls = append(calls, ask(Program{Seed: uint64(i), Loop: true, Steps: []Step{{After: 20 * time.Millisecond, Stream: 1, Bytes: 64 << 10}}}, func(n int) {
				mu.Lock()
				delivered[i] += int64(n)
				mu.Unlock()
			}))
		}
		until(t, 30*time.Second, "all of them print", func() bool { return slices.Min(snapshot()) > 0 })
		w.order(func(f *faults) { f.withhold = 1 })
		// What may be under way is, after a while, and then nothing moves.
		last, still := snapshot(), time.Now()
		until(t, 30*time.Second, "the floods stand still", func() bool {
			if now := snapshot(); !slices.Equal(now, last) {
				last, still = now, time.Now()
			}
			return time.Since(still) > 2*time.Second
		})
		look()
		beat := func() int64 {
			if b := w.server.State(w.device).LastHeartbeat; b != nil {
				return b.Seq
			}
			return -1
		}
		before := beat()
		until(t, patience, "a heartbeat within a second", func() bool { return beat() > before })
		quick := ask(Program{Seed: 99, Loop: true, Steps: []Step{{After: 10 * time.Millisecond, Stream: 1, Bytes: 5}}}, func(int) {})
		until(t, 10*time.Second, "one more command prints", func() bool { return quick.Watermark() >= 0 })
		for _, call := range []*refserver.Call{quick, calls[0]} {
			began := time.Now()
			w.judge.cancelled(call.ID())
			call.Cancel()
			how, err := call.Wait(t.Context())
			if took := time.Since(began); err != nil || how.Outcome != wire.Outcome(wire.CancelledOutcome{State: wire.CancelKilled}) || took > patience {
				t.Errorf("a cancel was answered %+v, %v, after %v", how.Outcome, err, took)
			}
		}
		stood := snapshot()
		w.order(func(f *faults) { f.withhold = 0 })
		until(t, 60*time.Second, "all streams go on", func() bool {
			now := snapshot()
			for i := 1; i < floods; i++ {
				if now[i] < stood[i]+2<<20 {
					return false
				}
			}
			return true
		})
		for _, call := range calls[1:] {
			w.judge.cancelled(call.ID())
			call.Cancel()
		}
		for _, call := range calls {
			if _, err := call.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, b := range r.Failures {
		t.Error(b)
	}
}

// With no server there, a command that floods waits, and its pipe is not read.
func TestAFloodWaitsForTheServerToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.Context(), Schedule{Seed: 12, Config: withheld}, newMadeUp(12))
		ask := flood(20 << 20)
		r := w.playWith(func() {
			w.dispatch(ask, 1, false)
			if !w.becomes(time.Second, func() bool { return w.judge.hasHeard(ask) }) {
				t.Error("the command says nothing")
			}
			w.net.set(func(n *network) { n.refuse = true })
			w.net.open().reset()
			time.Sleep(2 * time.Second)
			before := w.judge.moved(ask)
			time.Sleep(28 * time.Second)
			if after := w.judge.moved(ask); after != before || after >= 20<<20 {
				t.Errorf("%d bytes were written at first, and %d in the end", before, after)
			}
			w.judge.look()
			w.net.heal()
			w.calls.Wait()
			if how, heard := w.judge.end(ask); how.By != refserver.ByResult || heard != 20<<20 {
				t.Errorf("settled by %s with %d bytes", how.By, heard)
			}
		})
		for _, b := range r.Failures {
			t.Error(b)
		}
	})
}

// until polls until a condition holds. If it does not, the test goes on, so that
// whatever runs is ended in order.
func until(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not within %v: %s", within, what)
			return
		}
	}
}
