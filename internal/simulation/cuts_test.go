package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// flood is a command that says n bytes as fast as it can.
func flood(n int) *Ask {
	const step = 1 << 20
	a := &Ask{Kind: wire.KindExecStream, Timeout: time.Hour, Program: Program{Seed: 40, Exit: 4}}
	for ; n > 0; n -= step {
		a.Program.Steps = append(a.Program.Steps, Step{Stream: 1, Bytes: min(n, step)})
	}
	return a
}

// floodAndCut gives one command to the device of a world, cuts its connection so
// often, and waits for its end, which must be a whole success.
func floodAndCut(ctx context.Context, w *World, cuts int, cut func(n int64)) error {
	ask := flood(100_000_000)
	w.dispatch(ask, 1, false)
	total := int64(ask.Program.total(1)) * 4 / 3
	r := rand.New(rand.NewPCG(5, uint64(cuts)))
	for k := range cuts {
		if err := w.server.WaitFor(ctx, w.device, func(s refserver.DeviceState) bool { return s.Active && s.Connections > k }); err != nil {
			return fmt.Errorf("after %d cuts: %w", k, err)
		}
		cut(1 + r.Int64N(total/int64(cuts)))
	}
	w.calls.Wait()
	if n := w.server.State(w.device).Connections; n != cuts+1 {
		return fmt.Errorf("%d connections after %d cuts", n, cuts)
	}
	how, heard := w.judge.end(ask)
	if how.By != refserver.ByResult || how.Outcome != wire.Outcome(wire.ExecOutcome{ExitCode: int64(ask.Program.Exit)}) {
		return fmt.Errorf("settled by %s: %+v", how.By, how.Outcome)
	}
	if want := int64(ask.Program.total(1)); heard != want {
		return fmt.Errorf("%d bytes of %d", heard, want)
	}
	return nil
}

func TestAStreamCutFiveHundredTimesIsExact(t *testing.T) {
	t.Parallel()
	var bad []string
	synctest.Test(t, func(t *testing.T) {
		s := Generate(1, VirtualPace)
		s.Events = nil
		s.Config.Heartbeat = 15 * time.Second
		s.Config.LaneBytes, s.Config.LaneChunks, s.Config.TotalBytes = 0, 0, 0
		w := newWorld(t.Context(), s, newMadeUp(1))
		w.longest = time.Hour
		bad = w.playWith(func() {
			if err := floodAndCut(t.Context(), w, 500, func(n int64) { w.net.open().cutAfter(1, n) }); err != nil {
				t.Error(err)
			}
		}).Failures
	})
	for _, b := range bad {
		t.Error(b)
	}
}

// overTCP is the way to a world's server over real sockets.
func overTCP(t *testing.T, l net.Listener) func(*executor.Config) {
	t.Helper()
	server, err := enroll.ParseServer("http://"+l.Addr().String(), true)
	if err != nil {
		t.Fatal(err)
	}
	network, err := executor.NewNetwork(server, &http.Transport{}, "simulation")
	if err != nil {
		t.Fatal(err)
	}
	return func(c *executor.Config) { c.Network = network }
}

// onThisMachine makes a world of real processes, files and sockets.
func onThisMachine(t *testing.T, c Config) *World {
	t.Helper()
	player, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := &reality{dir: dir, player: player}
	if err := g.make(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t.Context(), Schedule{Seed: 9, Config: c}, func(*judge) ground { return g })
	w.longest = 10 * time.Minute
	w.listener, w.change = l, overTCP(t, l)
	return w
}

func TestARealStreamCutFortyTimesIsExact(t *testing.T) {
	t.Parallel()
	w := onThisMachine(t, Config{Heartbeat: time.Second, ReconnectGrace: time.Minute, Lease: 20 * time.Second, MaxInflight: 4, FirstGeneration: 1<<53 + 1})
	r := w.playWith(func() {
		limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := floodAndCut(limit, w, 40, func(n int64) { w.server.CutAfter(w.device, n) }); err != nil {
			t.Error(err)
		}
	})
	for _, b := range r.Failures {
		t.Error(b)
	}
}
