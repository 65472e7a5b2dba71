package conformance

import (
	"slices"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var heartbeatRows = []Row{
	{ID: "R14-heartbeat", Section: "R14, §2.2", Promise: "a heartbeat each interval, seq increasing, inflight true", run: r14Heartbeat},
	{ID: "R14-closed", Section: "R14, R2", Promise: "a connection that the server closes without a bye, as for silence, is made anew, and work goes on", run: r14Closed},
	{ID: "R14-busy", Section: "R14", Promise: "heartbeats go on under a flood of output", run: r14Busy},
}

func r14Heartbeat(c *Case) {
	const interval = 800 * time.Millisecond
	c.begin(refserver.Config{Heartbeat: interval})
	a := c.ask(run("echo $$ > pid; sleep 8"))
	c.pidIn(c.path("pid"))
	before := len(c.trace.messages(fromDevice(wire.TypeHeartbeat)))
	c.rest(8 * interval)
	during := c.trace.messages(fromDevice(wire.TypeHeartbeat))[before:]
	c.exited(a.settled(), 0)
	c.rest(5 * interval)
	beats := c.trace.messages(fromDevice(wire.TypeHeartbeat))
	c.expect(len(during) >= 5 && len(during) <= 10, "%d heartbeats in 8 intervals of 800 ms; expected one each, 5 to 10", len(during))
	listed := 0
	for i, m := range during {
		if slices.Contains(m.beat.Inflight, a.ID()) {
			listed++
		}
		if i > 0 {
			c.expect(m.Seq > during[i-1].Seq, "a heartbeat with seq %d came after one with %d; seq has to increase", m.Seq, during[i-1].Seq)
			gap := m.at.Sub(during[i-1].at)
			c.expect(gap < 3*interval, "%v between two heartbeats of an interval of 800 ms", gap.Round(time.Millisecond))
		}
	}
	c.expect(listed >= len(during)-2, "the running command is named in inflight of %d heartbeats of %d", listed, len(during))
	if len(beats) == 0 {
		return
	}
	last := beats[len(beats)-1]
	c.expect(len(last.beat.Inflight) == 0, "inflight still names finished work: %v", last.beat.Inflight)
	c.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeResultAck)})
	done := c.ask(run("true"))
	c.exited(done.settled(), 0)
	from := len(c.trace.messages(fromDevice(wire.TypeHeartbeat)))
	c.rest(2 * interval)
	for _, m := range c.trace.messages(fromDevice(wire.TypeHeartbeat))[from:] {
		c.expect(!slices.Contains(m.beat.Inflight, done.ID()), "inflight names work that is done, and only waits for resultAck")
	}
	c.expect(c.state().Connections == 1, "the quiet connection was lost")
}

func r14Busy(c *Case) {
	c.begin(refserver.Config{Heartbeat: time.Second})
	a := c.askUnread(live("i=0; while [ $i -lt 200 ]; do head -c 150000 /dev/zero; sleep 0.02; i=$((i+1)); done"))
	c.exited(a.settled(), 0)
	beats := c.trace.messages(fromDevice(wire.TypeHeartbeat))
	for i := 1; i < len(beats); i++ {
		gap := beats[i].at.Sub(beats[i-1].at)
		c.expect(gap < 3*time.Second, "%v between two heartbeats of an interval of 1 s, under a flood of output", gap.Round(time.Millisecond))
	}
	c.expect(len(beats) >= 3, "%d heartbeats in more than 4 s, with an interval of 1 s", len(beats))
}

func r14Closed(c *Case) {
	const interval = 500 * time.Millisecond
	c.begin(refserver.Config{Heartbeat: interval})
	a := c.ask(run(counting(250)))
	c.pidIn(c.path("pid"))
	epoch := c.state().Epoch
	first := c.conn()
	// The server reads nothing for a while, so that it closes as R14 has it.
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		if _, hello := f.(*wire.Hello); !hello && c.conn() == first {
			return refserver.Action{Delay: 4 * interval, Drop: true}
		}
		return refserver.Action{}
	}})
	c.again(1)
	c.expect(c.state().Epoch == epoch, "the same process came back with another epoch; a connection that was closed is no new start (R2)")
	how := a.settled()
	c.exited(how, 0)
	c.whole(how, counted(250), "")
}
