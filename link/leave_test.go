package link_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestLeavingSaysWhyAndEndsWithoutError(t *testing.T) {
	for reason, cause := range map[wire.GoodbyeReason]link.Cause{
		wire.GoodbyeShutdown: link.CauseToldShutdown,
		wire.GoodbyeUserStop: link.CauseToldUserStop,
	} {
		t.Run(string(reason), func(t *testing.T) {
			simulate(t, options{}, func(t *testing.T, w *world) {
				w.active()
				w.link.Leave(reason)
				w.link.Leave(wire.GoodbyeSleep) // only the first counts
				if err := w.end(time.Second); err != nil {
					t.Errorf("Run returned %v", err)
				}
				if st := w.server.State(w.device); st.Goodbye != reason {
					t.Errorf("goodbye %q", st.Goodbye)
				}
				if got := w.entries(link.Leaving); len(got) == 0 || got[0].Cause != cause {
					t.Errorf("leaving: %v", causes(got))
				}
				if s := w.last(); s.Phase != link.Stopped || s.Cause != link.CauseDrained {
					t.Errorf("state %s (%s)", s.Phase, s.Cause)
				}
				w.innocent()
			})
		})
	}
}

func TestWorkMayFinishWithinTheDrain(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.link.Leave(wire.GoodbyeShutdown)
		w.wait(8 * time.Second)
		if err := w.work.say(t.Context(), call.ID(), 500_000); err != nil {
			t.Fatal(err)
		}
		w.succeeds(call)
		if err := w.end(2 * time.Second); err != nil || w.work.aborted {
			t.Errorf("Run returned %v, aborted %t", err, w.work.aborted)
		}
		w.innocent()
	})
}

func TestWhatOutlastsTheDrainIsEndedAndAnswered(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.link.Leave(wire.GoodbyeShutdown)
		began := time.Since(w.start)
		s := w.settled(call)
		if f, ok := s.Outcome.(wire.Failure); !ok || f.Code != wire.CodeAborted {
			t.Errorf("settled %+v", s)
		}
		if err := w.end(time.Second); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if took := time.Since(w.start) - began; took < 10*time.Second || took > 12*time.Second {
			t.Errorf("it took %v with a drain of 10 s", took)
		}
		if s := w.last(); s.Cause != link.CauseDrainOver {
			t.Errorf("cause %s", s.Cause)
		}
		w.innocent()
	})
}

func TestAnInstructionAfterGoodbyeIsAnswered(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.link.Leave(wire.GoodbyeShutdown)
		w.wait(100 * time.Millisecond)
		late, err := w.server.Dispatch(t.Context(), w.device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: "x"}, Straggler: true})
		if err != nil {
			t.Fatal(err)
		}
		s := w.settled(late)
		if f, ok := s.Outcome.(wire.Failure); !ok || f.Code != wire.CodeTargetUnavailable {
			t.Errorf("settled %+v", s)
		}
		if err := w.end(2 * time.Second); err != nil {
			t.Errorf("Run returned %v", err)
		}
		w.innocent()
	})
}

func TestLeavingWhileDisconnected(t *testing.T) {
	t.Run("with nothing in hand ends at once", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.net.setRefuse(true)
			w.net.cutAll()
			w.wait(time.Minute)
			w.link.Leave(wire.GoodbyeShutdown)
			if err := w.end(time.Millisecond); err != nil {
				t.Errorf("Run returned %v", err)
			}
		})
	})
	t.Run("delivers what finishes when the server comes back", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			call := w.exec()
			w.net.setRefuse(true)
			w.net.cutAll()
			w.wait(2 * time.Second)
			w.link.Leave(wire.GoodbyeShutdown)
			w.wait(time.Second)
			w.net.setRefuse(false)
			w.wait(6 * time.Second)
			w.succeeds(call)
			if err := w.end(2 * time.Second); err != nil {
				t.Errorf("Run returned %v", err)
			}
			if g := w.server.State(w.device).Goodbye; g != wire.GoodbyeShutdown {
				t.Errorf("goodbye %q", g)
			}
			w.innocent()
		})
	})
	t.Run("does not wait for ever for a server that stays away", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.exec()
			w.net.setRefuse(true)
			w.net.cutAll()
			w.wait(2 * time.Second)
			w.link.Leave(wire.GoodbyeShutdown)
			if err := w.end(16 * time.Second); err != nil {
				t.Errorf("Run returned %v", err)
			}
			if s := w.last(); s.Cause != link.CauseDrainOver {
				t.Errorf("cause %s", s.Cause)
			}
		})
	})
}

func TestResultsThatAreNotAcknowledgedDoNotHoldTheEnd(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeResultAck)})
		w.work.done(call.ID())
		w.wait(time.Second)
		w.link.Leave(wire.GoodbyeUserStop)
		if err := w.end(6 * time.Second); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestByeDuringTheDrainIsObeyed(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.exec()
		w.link.Leave(wire.GoodbyeShutdown)
		w.wait(time.Second)
		w.server.Revoke(w.device)
		if err := w.end(time.Second); !errors.Is(err, link.ErrRevoked) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestStoppingNowDropsTheConnectionWithoutGoodbye(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.exec()
		w.link.Leave(wire.GoodbyeShutdown)
		w.wait(time.Second)
		w.stop()
		if err := w.end(time.Millisecond); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if s := w.last(); s.Cause != link.CauseStoppedAtOne {
			t.Errorf("cause %s", s.Cause)
		}
	})
}

func TestSuspendSaysGoodbyeAndWakeRedialsWithTheSameEpoch(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		epoch := w.server.State(w.device).Epoch
		began := time.Now()
		w.link.Suspend(t.Context())
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Suspend took %v", took)
		}
		synctest.Wait() // the server has seen it
		if st := w.server.State(w.device); st.Goodbye != wire.GoodbyeSleep || st.Connected {
			t.Errorf("goodbye %q, connected %t", st.Goodbye, st.Connected)
		}
		w.wait(10 * time.Second)
		if s := w.last(); s.Phase != link.Sleeping {
			t.Errorf("state %s", s.Phase)
		}
		w.link.Wake()
		w.wait(time.Millisecond)
		if st := w.server.State(w.device); !st.Active || st.Epoch != epoch {
			t.Errorf("after waking: active %t, epoch %s, was %s", st.Active, st.Epoch, epoch)
		}
		w.succeeds(call)
		w.innocent()
	})
}

func TestASleepWithoutAWakeSignalEndsByTheClock(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.link.Suspend(t.Context())
		w.wait(2 * time.Second)
		w.jump(8 * time.Hour)
		w.wait(1100 * time.Millisecond)
		if !w.server.State(w.device).Active {
			t.Errorf("state %s", w.last().Phase)
		}
		w.link.Suspend(t.Context()) // announced, and never comes
		w.wait(31 * time.Second)
		if !w.server.State(w.device).Active {
			t.Errorf("state %s", w.last().Phase)
		}
	})
}

func TestSuspendIsObeyedInEveryPhase(t *testing.T) {
	t.Run("backing off", func(t *testing.T) {
		simulate(t, options{silent: true}, func(t *testing.T, w *world) {
			w.net.setRefuse(true)
			done := w.run()
			w.wait(time.Minute)
			w.link.Suspend(t.Context())
			if s := w.last(); s.Phase != link.Sleeping {
				t.Errorf("state %s", s.Phase)
			}
			w.net.setRefuse(false)
			w.link.Wake()
			w.active()
			w.stop()
			<-done
		})
	})
	t.Run("handshaking", func(t *testing.T) {
		simulate(t, options{silent: true}, func(t *testing.T, w *world) {
			w.server.SetFaults(refserver.Faults{NoChallenge: true})
			done := w.run()
			w.wait(time.Second)
			if s := w.last(); s.Phase != link.Handshaking {
				t.Fatalf("state %s", s.Phase)
			}
			w.link.Suspend(t.Context())
			if s := w.last(); s.Phase != link.Sleeping {
				t.Errorf("state %s", s.Phase)
			}
			w.server.SetFaults(refserver.Faults{})
			w.link.Wake()
			w.active()
			w.stop()
			<-done
		})
	})
	t.Run("leaving", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			call := w.exec()
			w.link.Leave(wire.GoodbyeShutdown)
			w.wait(time.Second)
			w.link.Suspend(t.Context()) // announced, and the way out goes on until it comes
			began := time.Now()
			w.succeeds(call)
			if err := w.end(time.Minute); err != nil || time.Since(began) > 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("stopped", func(t *testing.T) {
		simulate(t, options{}, func(t *testing.T, w *world) {
			w.active()
			w.stop()
			_ = w.end(time.Second)
			w.link.Suspend(t.Context()) // returns
		})
	})
}

// Whoever is superseded just when its machine goes to sleep must not take the lease
// back on waking.
func TestAByeDuringTheGoodbyeOfASleepIsHeard(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.net.last().stall(true)
		if err := w.work.say(t.Context(), call.ID(), 1<<20); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a frame is under way, and goodbye will have to wait for it
		slept := make(chan struct{})
		go func() {
			defer close(slept)
			w.link.Suspend(t.Context())
		}()
		w.wait(100 * time.Millisecond)
		w.server.Supersede(w.device)
		if err := w.end(time.Second); !errors.Is(err, link.ErrSuperseded) {
			t.Errorf("Run returned %v", err)
		}
		<-slept
	})
}

func TestGoodbyeTellsTheServerToWaitLongerThanTheDrain(t *testing.T) {
	var said []byte
	simulate(t, options{silent: true}, func(t *testing.T, w *world) {
		w.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
			if g, ok := f.(*wire.Goodbye); ok {
				said, _ = wire.AppendDevice(nil, g)
			}
			return refserver.Action{}
		}})
		done := w.run()
		w.active()
		w.link.Leave(wire.GoodbyeShutdown)
		<-done
		var g struct{ GraceMs int64 }
		if err := json.Unmarshal(said, &g); err != nil || g.GraceMs <= 10_000 {
			t.Errorf("goodbye %s", said)
		}
	})
}

func TestCausesAndPhasesAreClosedSets(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.net.cutAll()
		w.wait(2 * time.Second)
		w.link.Suspend(t.Context())
		w.link.Wake()
		w.active()
		w.link.Leave(wire.GoodbyeShutdown)
		_ = w.end(time.Minute)
		for _, s := range w.history() {
			if !slices.Contains(link.Phases(), s.Phase) || !slices.Contains(link.Causes(), s.Cause) {
				t.Errorf("%s (%s)", s.Phase, s.Cause)
			}
		}
	})
}
