package link_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestAHalfOpenConnectionIsNoticedByPings(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second} {
		t.Run(interval.String(), func(t *testing.T) {
			simulate(t, options{server: refserver.Config{Heartbeat: interval}}, func(t *testing.T, w *world) {
				w.active()
				call := w.exec()
				for _, offset := range []time.Duration{0, interval / 3, interval - time.Millisecond} {
					w.wait(20*interval + offset)
					before := len(w.entries(link.Connecting))
					w.net.last().freeze()
					frozen := time.Since(w.start)
					w.wait(2*interval + interval + 1500*time.Millisecond)
					tries := w.entries(link.Connecting)
					if len(tries) == before {
						t.Fatalf("no redial within %v", 3*interval+1500*time.Millisecond)
					}
					rests := w.entries(link.BackingOff)
					last := rests[len(rests)-1]
					if last.Cause != link.CausePeerSilent {
						t.Errorf("cause %s", last.Cause)
					}
					if took := last.at - frozen; took < interval || took > 2*interval+10*time.Millisecond {
						t.Errorf("noticed after %v at an interval of %v", took, interval)
					}
					if took := tries[len(tries)-1].at - frozen; interval == 2*time.Second && took > 9*time.Second {
						t.Errorf("redialled after %v", took)
					}
					w.active()
				}
				w.succeeds(call)
				if len(w.work.ended) > 0 {
					t.Error("the command was ended")
				}
			})
		})
	}
}

func TestAQuietConnectionIsNotMistakenForADeadOne(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.wait(2 * time.Hour)
		if n := len(w.entries(link.Connecting)); n != 1 {
			t.Errorf("%d connections in two quiet hours", n)
		}
		w.innocent()
	})
}

func TestAWriteThatStallsCostsTheConnectionAfterTwentySeconds(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: time.Minute}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.net.last().stall(true)
		began := time.Since(w.start)
		if err := w.work.say(t.Context(), call.ID(), 1<<20); err != nil {
			t.Fatal(err)
		}
		w.wait(25 * time.Second)
		rests := w.entries(link.BackingOff)
		if len(rests) != 1 || rests[0].Cause != link.CauseWriteStalled || rests[0].at-began != 20*time.Second {
			t.Fatalf("back-offs %+v", rests)
		}
		w.active()
		w.succeeds(call)
		w.innocent()
	})
}

func TestAHalfOpenConnectionIsNoticedUnderAFlood(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: 2 * time.Second}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.net.last().stall(true) // for good: the next write fills what there is of buffers
		began := time.Since(w.start)
		if err := w.work.say(t.Context(), call.ID(), 1<<20); err != nil {
			t.Fatal(err)
		}
		w.wait(12 * time.Second)
		dials := w.entries(link.Connecting)
		if redial := dials[len(dials)-1].at - began; len(dials) != 2 || redial > 9*time.Second {
			t.Fatalf("connections tried %+v, the last one after %v", dials, redial)
		}
		w.active()
		w.succeeds(call)
		w.innocent()
	})
}

func TestASlowPeerIsNotAskedForPongsDuringAWrite(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: 2 * time.Second}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		pair := w.net.last()
		pair.stall(true)
		if err := w.work.say(t.Context(), call.ID(), 1<<20); err != nil {
			t.Fatal(err)
		}
		// Longer than two intervals, and shorter than the server's patience of three.
		w.wait(5900 * time.Millisecond)
		pair.stall(false)
		w.wait(time.Minute)
		if n := len(w.entries(link.BackingOff)); n != 0 {
			t.Errorf("the connection was dropped: %v", causes(w.entries(link.BackingOff)))
		}
		w.succeeds(call)
		w.innocent()
	})
}

// announce puts the header of a text frame of that size on the way to the device, as
// a server's own.
func announce(w *world, bytes uint64) {
	header := binary.BigEndian.AppendUint64([]byte{0x81, 127}, bytes)
	_, _ = w.net.last().toDevice.write(header)
	synctest.Wait()
}

func TestAFrameThatIsTooLargeIsRefusedWhenItIsAnnounced(t *testing.T) {
	for _, size := range []uint64{wire.MaxFrameBytes + 1<<17, 1 << 40, 1 << 62, 1 << 63} {
		t.Run(strconv.FormatUint(size, 10), func(t *testing.T) {
			simulate(t, options{}, func(t *testing.T, w *world) {
				w.active()
				call := w.exec()
				announce(w, size)
				rests := w.entries(link.BackingOff)
				if len(rests) != 1 || rests[0].Cause != link.CauseSocketFailed || !strings.Contains(rests[0].Err.Error(), "frame of more than 1048576 bytes") {
					t.Fatalf("back-offs %+v", rests)
				}
				w.active()
				w.succeeds(call)
				w.innocent()
			})
		})
	}
}

func TestWhatAFrameInFrontOfATooLargeOneSaysIsHeard(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		frame := `{"t":"bye","gen":"1","reason":"???"}`
		bye := append([]byte{0x81, byte(len(frame))}, frame...)
		_, _ = w.net.last().toDevice.write(append(bye, 0x81, 127, 0, 0, 1, 0, 0, 0, 0, 0))
		synctest.Wait()
		if rests := w.entries(link.BackingOff); len(rests) != 1 || rests[0].Cause != link.CauseByeUnknown {
			t.Fatalf("back-offs %+v", rests)
		}
	})
}

// The pongs vanish into a frame that does not come to its end.
func TestAFrameThatTricklesIsNoLife(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: 2 * time.Second}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		announce(w, wire.MaxFrameBytes)
		began := time.Since(w.start)
		trickling := w.net.last()
		for range 10 * 60 {
			w.wait(time.Second)
			if len(w.entries(link.BackingOff)) > 0 {
				break
			}
			_, _ = trickling.toDevice.write([]byte(" "))
		}
		rests := w.entries(link.BackingOff)
		if len(rests) != 1 || rests[0].Cause != link.CausePeerSilent {
			t.Fatalf("back-offs %+v", rests)
		}
		if took := rests[0].at - began; took > 2*time.Minute+5*time.Second {
			t.Errorf("the connection was kept for %v", took)
		}
		w.active()
		w.succeeds(call)
	})
}

func TestALargeFrameOnASlowLineDoesNotCostTheConnection(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: 2 * time.Second}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.net.last().toDevice.set(func(q *pipe) { q.pace, q.room = 100*time.Millisecond, 4<<20 })
		began := time.Now()
		frame := append([]byte(`{"t":"later","more":"`), bytes.Repeat([]byte("x"), wire.MaxFrameBytes-100)...)
		w.server.Inject(w.device, append(frame, `"}`...))
		for w.link.Counters().UnknownFrames == 0 && time.Since(began) < 5*time.Minute {
			w.wait(time.Second)
		}
		if took := time.Since(began); took < 100*time.Second || took > 110*time.Second {
			t.Errorf("the frame took %v", took)
		}
		w.succeeds(call)
		if n := len(w.entries(link.BackingOff)); n != 0 {
			t.Errorf("the connection was dropped: %v", causes(w.entries(link.BackingOff)))
		}
	})
}

func TestAClockJumpProbesAtOnce(t *testing.T) {
	t.Run("dead", func(t *testing.T) {
		simulate(t, options{server: refserver.Config{Heartbeat: time.Minute}}, func(t *testing.T, w *world) {
			w.active()
			w.wait(15 * time.Second)
			w.net.last().freeze()
			w.jump(time.Hour)
			jumped := time.Since(w.start)
			w.wait(8 * time.Second)
			rests := w.entries(link.BackingOff)
			if len(rests) != 1 || rests[0].Cause != link.CauseProbeFailed {
				t.Fatalf("back-offs %v", causes(rests))
			}
			if s := w.last(); s.Phase != link.Active || s.at-jumped > 8*time.Second {
				t.Errorf("state %s, %v after the jump", s.Phase, s.at-jumped)
			}
		})
	})
	t.Run("alive", func(t *testing.T) {
		simulate(t, options{server: refserver.Config{Heartbeat: time.Minute}}, func(t *testing.T, w *world) {
			w.active()
			for _, by := range []time.Duration{time.Hour, -3 * time.Hour} {
				w.jump(by)
				w.wait(30 * time.Second)
			}
			if n := len(w.entries(link.BackingOff)); n != 0 {
				t.Errorf("a living connection was dropped: %v", causes(w.entries(link.BackingOff)))
			}
		})
	})
	t.Run("while backing off", func(t *testing.T) {
		simulate(t, options{silent: true}, func(t *testing.T, w *world) {
			w.net.setRefuse(true)
			done := w.run()
			w.wait(3 * time.Minute)
			w.net.setRefuse(false)
			w.jump(time.Hour)
			w.wait(2 * time.Second)
			if s := w.last(); s.Phase != link.Active {
				t.Errorf("state %s", s.Phase)
			}
			w.stop()
			<-done
		})
	})
}

func (w *world) jump(by time.Duration) {
	w.mu.Lock()
	w.skew += by
	w.mu.Unlock()
}

func TestHeartbeatsDoNotWaitBehindAFlood(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: time.Second}}, func(t *testing.T, w *world) {
		w.active()
		// A peer that takes ten chunks a second.
		w.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
			if f.DeviceType() == wire.TypeChunk {
				return refserver.Action{Delay: 100 * time.Millisecond}
			}
			return refserver.Action{}
		}})
		call := w.exec()
		ctx, cancel := context.WithCancel(t.Context())
		said := make(chan error, 1)
		go func() { said <- w.work.say(ctx, call.ID(), 1<<30) }()
		w.wait(8 * time.Second)
		cancel()
		<-said
		beats := w.sent(wire.TypeHeartbeat)
		if len(beats) < 7 {
			t.Fatalf("%d heartbeats in 8 s", len(beats))
		}
		for i := 1; i < len(beats); i++ {
			if gap := beats[i].at - beats[i-1].at; gap > 1500*time.Millisecond {
				t.Errorf("%v between two heartbeats", gap)
			}
			if beats[i].Seq != beats[i-1].Seq+1 {
				t.Errorf("heartbeat %d follows %d", beats[i].Seq, beats[i-1].Seq)
			}
		}
	})
}

func TestHeartbeatsNameTheWorkAndCountPerConnection(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: time.Second}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.wait(3500 * time.Millisecond)
		if got := w.server.State(w.device).LastHeartbeat; got == nil || got.Seq != 2 || !slices.Equal(got.Inflight, []string{call.ID()}) {
			t.Errorf("heartbeat %+v", got)
		}
		w.net.cutAll()
		w.wait(1500 * time.Millisecond)
		w.active()
		w.wait(1500 * time.Millisecond)
		if got := w.server.State(w.device).LastHeartbeat; got == nil || got.Seq > 2 {
			t.Errorf("heartbeat %+v on the second connection", got)
		}
		w.innocent()
	})
}
