package link

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// mute is a socket that has been silent since a moment.
type mute struct {
	Socket
	since time.Time
}

func (m *mute) Silence() time.Duration     { return time.Since(m.since) }
func (m *mute) Ping(context.Context) error { return nil }

func vigilOver(m *mute, interval time.Duration) *vigil {
	c := newConnection(nil, m, &wire.HelloAck{Gen: "1", HeartbeatIntervalMs: interval.Milliseconds()})
	return newVigil(c)
}

// A process that was frozen finds all its timers due at once. What arrived in the
// meantime lies unread in the kernel, so silence is no proof yet.
func TestAFreezeIsNotTakenForTheServersSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mute{since: time.Now()}
		v := vigilOver(m, 2*time.Second)
		defer v.stop()
		time.Sleep(time.Second)
		v.c.asked.Store(v.c.clock()) // a ping went out, and then everything stood still
		time.Sleep(9 * time.Second)
		if out, over := v.judge(); over {
			t.Fatalf("dropped at once: %s", out.cause)
		}
		if _, ping := (<-v.c.control).(pingOrder); !ping {
			t.Error("no ping was ordered")
		}
		m.since = time.Now() // what had arrived is read
		<-v.due()
		if out, over := v.judge(); over {
			t.Fatalf("dropped although it spoke: %s", out.cause)
		}
		time.Sleep(20 * time.Second)
		v.judge()
		<-v.due()
		if out, over := v.judge(); !over || out.cause != CauseProbeFailed {
			t.Errorf("over %t, cause %s after a freeze that the server did not outlast", over, out.cause)
		}
	})
}

func TestSilenceIsNoVerdictUntilThePeerWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mute{since: time.Now()}
		v := vigilOver(m, 2*time.Second)
		defer v.stop()
		for range 5 { // a write is under way, so no ping goes out
			<-v.due()
			if out, over := v.judge(); over {
				t.Fatalf("dropped: %s", out.cause)
			}
		}
		v.c.asked.Store(v.c.clock())
		asked := time.Now()
		for {
			<-v.due()
			if _, over := v.judge(); over {
				break
			}
		}
		if took := time.Since(asked); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("dropped %v after the question", took)
		}
	})
}

// An absurd interval must not turn every pause of a busy machine into the end of a
// connection, and that, at a server which lists nothing, into the end of its work.
func TestAPauseOfABusyMachineIsNoSilenceHoweverShortTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mute{since: time.Now()}
		v := vigilOver(m, time.Millisecond)
		defer v.stop()
		v.c.asked.Store(v.c.clock())
		for began := time.Now(); ; {
			<-v.due()
			out, over := v.judge()
			if took := time.Since(began); over && (took < time.Second || took > 2*time.Second) {
				t.Errorf("%s after %v", out.cause, took)
			}
			if over {
				break
			}
		}
	})
}

func TestHeartbeatIntervalsAreBounded(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		1: minInterval, 15000: 15 * time.Second, wire.MaxSafeInteger: maxInterval,
	} {
		if got := newConnection(nil, nil, &wire.HelloAck{HeartbeatIntervalMs: ms}).interval; got != want {
			t.Errorf("%d ms become %v, want %v", ms, got, want)
		}
	}
}
