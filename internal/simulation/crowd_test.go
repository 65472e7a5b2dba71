package simulation

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// crowd is many devices of one server, with a judge for each.
type crowd struct {
	server  *refserver.Server
	devices []*World

	mu     sync.Mutex
	byID   map[string]*World
	byConn map[int64]*World
	backs  []time.Time // handshakes completed since the list was last emptied
}

// hear is refserver.Config.Trace.
func (c *crowd) hear(dir refserver.Direction, f refserver.Frame, raw []byte) {
	c.mu.Lock()
	w := c.byConn[f.Conn]
	switch {
	case w == nil && f.Type == string(wire.TypeHello):
		w = c.byID[f.DeviceID]
		c.byConn[f.Conn] = w
		w.judge.dials(f.Conn) // the challenge did not say for whom it was
	case f.Type == string(wire.TypeHelloAck):
		c.backs = append(c.backs, time.Now())
	}
	c.mu.Unlock()
	if w != nil {
		w.judge.hear(dir, f, raw)
	}
}

// each does something to all devices, one after another so that all of it has a time
// of its own.
func (c *crowd) each(pause time.Duration, f func(*World)) {
	for _, w := range c.devices {
		f(w)
		time.Sleep(pause)
	}
}

// handshakes empties the list.
func (c *crowd) handshakes() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	backs := c.backs
	c.backs = nil
	return backs
}

// mostWithin is the most of the times, which are in order, that one window holds.
func mostWithin(window time.Duration, times []time.Time) (most int) {
	from := 0
	for to, t := range times {
		for t.Sub(times[from]) >= window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// A server is away for five seconds, with all its memory or without: two hundred
// whole executors, each with a command in hand, come back soon and do not trample it.
func TestTwoHundredExecutorsComeBackSpreadOut(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"it comes back as it was": false, "it comes back empty": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { comeBack(t, forgets) }) })
	}
}

func comeBack(t *testing.T, forgets bool) {
	const size, away = 200, 5 * time.Second
	c := &crowd{byID: map[string]*World{}, byConn: map[int64]*World{}}
	s := Schedule{Config: Config{Heartbeat: 15 * time.Second, ReconnectGrace: 2 * time.Minute, Lease: 45 * time.Second, MaxInflight: 4, FirstGeneration: 1}}
	c.server = refserver.New(s.server(c.hear))
	var served sync.WaitGroup
	var asks []*Ask
	for i := range size {
		s.Seed = uint64(i + 1)
		w := newDevice(t.Context(), s, newMadeUp(s.Seed))
		w.join(c.server)
		c.devices = append(c.devices, w)
		c.byID[w.device] = w
		served.Go(func() { _ = c.server.Serve(w.listener) })
		ask := &Ask{Kind: wire.KindExec, Timeout: time.Minute, Program: Program{Seed: s.Seed, Exit: 2}}
		for range 12 {
			ask.Program.Steps = append(ask.Program.Steps, Step{After: 3 * time.Second, Stream: 1, Bytes: 50})
		}
		asks = append(asks, ask)
	}
	c.each(10*time.Millisecond, (*World).start)
	for i, w := range c.devices {
		w.dispatch(asks[i], i, false)
	}
	time.Sleep(12 * time.Second)
	if n := len(c.handshakes()); n != size {
		t.Errorf("%d handshakes at first", n)
	}

	drop := time.Now()
	for _, w := range c.devices {
		w.net.set(func(n *network) { n.refuse = true })
		w.net.open().reset()
	}
	if forgets {
		c.server.Restart()
	}
	time.Sleep(away)
	for _, w := range c.devices {
		w.net.heal()
	}
	time.Sleep(time.Until(drop.Add(14 * time.Second)))
	backs := c.handshakes()
	most := mostWithin(100*time.Millisecond, backs)
	if len(backs) != size || most > 30 {
		t.Errorf("%d came back within 14 s, at most %d of them within 100 ms", len(backs), most)
	}
	if len(backs) > 0 {
		t.Logf("back %v to %v after the drop, at most %d within 100 ms", backs[0].Sub(drop), backs[len(backs)-1].Sub(drop), most)
	}
	time.Sleep(time.Minute)
	want := refserver.ByResult
	if forgets {
		want = refserver.ByRestart
	}
	for i, w := range c.devices {
		if how, _ := w.judge.end(asks[i]); how.By != want {
			t.Errorf("the command of device %d was settled by %q, not %q", i, how.By, want)
		}
	}
	if n := len(c.handshakes()); n != 0 {
		t.Errorf("%d connections more", n)
	}

	c.each(time.Millisecond, func(w *World) {
		w.judge.leaves()
		w.x.Stop(wire.GoodbyeShutdown)
	})
	c.each(0, func(w *World) { w.await(time.Minute) })
	if err := c.server.Close(); err != nil {
		t.Error(err)
	}
	for _, w := range c.devices {
		_ = w.net.Close()
		w.calls.Wait()
		w.ground.end(w.judge)
	}
	served.Wait()
	for _, v := range c.server.Violations() {
		c.byID[v.DeviceID].judge.object(v)
	}
	for i, w := range c.devices {
		for _, bad := range w.judge.failures {
			t.Errorf("device %d: %s", i, bad)
		}
	}
}

func TestMostWithinCountsTheFullestWindow(t *testing.T) {
	at := func(ms ...int) (times []time.Time) {
		for _, m := range ms {
			times = append(times, time.UnixMilli(int64(m)))
		}
		return times
	}
	for _, c := range []struct {
		times []time.Time
		want  int
	}{{nil, 0}, {at(5), 1}, {at(0, 100), 1}, {at(0, 99), 2}, {at(0, 50, 100, 101, 149, 300), 4}} {
		if got := mostWithin(100*time.Millisecond, c.times); got != c.want {
			t.Errorf("%v: %d, want %d", c.times, got, c.want)
		}
	}
}
