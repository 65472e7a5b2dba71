package link_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestListedWorkGoesOnAcrossAReconnect(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		epoch := w.server.State(w.device).Epoch
		call := w.exec()
		for range 5 {
			if err := w.work.say(t.Context(), call.ID(), 100_000); err != nil {
				t.Fatal(err)
			}
			w.net.cutAll()
			w.wait(2 * time.Second)
			w.active()
		}
		w.succeeds(call)
		if got := w.server.State(w.device).Epoch; got != epoch {
			t.Errorf("epoch %s became %s", epoch, got)
		}
		if w.work.cut < 5 {
			t.Errorf("the work was told %d times that payloads are cut", w.work.cut)
		}
		w.innocent()
	})
}

func TestUnlistedWorkIsEndedBeforeGenerationAckAndStaysSilent(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		running, finished := w.exec(), w.exec()
		if err := w.work.say(t.Context(), running.ID(), 1000); err != nil {
			t.Fatal(err)
		}
		w.work.endTime = 3 * time.Second
		w.net.setRefuse(true)
		w.server.Restart() // nothing is pending any more
		w.wait(100 * time.Millisecond)
		w.work.done(finished.ID())
		w.net.setRefuse(false)
		w.wait(10 * time.Second)
		w.active()
		if want := []string{running.ID(), finished.ID()}; !slices.Equal(w.work.ended, want) {
			t.Errorf("ended %v, want %v", w.work.ended, want)
		}
		fencing, active := w.entries(link.Fencing)[1], w.entries(link.Active)[1]
		acks := w.sent(wire.TypeGenerationAck)
		if len(acks) != 2 || acks[1].at < fencing.at+3*time.Second || active.at < fencing.at+3*time.Second {
			t.Errorf("fencing at %v, generationAck %+v", fencing.at, acks)
		}
		if n := w.outbox.Unacked(); n != 0 {
			t.Errorf("%d results of unlisted work are held", n)
		}
		w.wait(time.Minute)
		for _, f := range append(w.sent(wire.TypeResult), w.sent(wire.TypeChunk)...) {
			if f.Gen == acks[1].Gen {
				t.Errorf("said of unlisted work: %+v", f)
			}
		}
		w.innocent()
	})
}

func TestAFenceThatOutlastsThreeIntervalsKeepsTheConnection(t *testing.T) {
	simulate(t, options{server: refserver.Config{Heartbeat: time.Second}}, func(t *testing.T, w *world) {
		w.active()
		w.exec()
		w.work.endTime = 8 * time.Second
		w.server.Restart()
		w.wait(2 * time.Second) // the fence is under way
		if s := w.last(); s.Phase != link.Fencing {
			t.Fatalf("state %s", s.Phase)
		}
		w.wait(10 * time.Second)
		if s := w.last(); s.Phase != link.Active || s.Cause != link.CauseFenced {
			t.Errorf("state %s (%s)", s.Phase, s.Cause)
		}
		if n := len(w.entries(link.Connecting)); n != 2 {
			t.Errorf("%d connections", n)
		}
		acks := w.sent(wire.TypeGenerationAck)
		early := 0
		for _, b := range w.sent(wire.TypeHeartbeat) {
			if b.Gen == acks[1].Gen && b.at < acks[1].at {
				early++
			}
		}
		if early < 6 {
			t.Errorf("%d heartbeats during a fence of 8 s", early)
		}
		w.innocent()
	})
}

func TestAProcessThatCannotBeKilledCountsAsFencedAfterTenSeconds(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		call := w.immortal()
		s := w.last()
		if s.Phase != link.Active || s.Cause != link.CauseFencedStuck || !slices.Equal(s.Stuck, []string{call.ID()}) {
			t.Errorf("state %s (%s), stuck %v", s.Phase, s.Cause, s.Stuck)
		}
		if took := s.at - w.entries(link.Fencing)[1].at; took != 10*time.Second {
			t.Errorf("the fence took %v", took)
		}
		next := w.exec()
		w.succeeds(next)
		w.innocent()
	})
}

func TestWhatIsKnownNotToDieIsNotWaitedForAgain(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		call := w.immortal()
		w.net.cutAll()
		w.wait(2 * time.Second)
		s := w.last()
		if s.Phase != link.Active || !slices.Equal(s.Stuck, []string{call.ID()}) {
			t.Errorf("state %s (%s), stuck %v", s.Phase, s.Cause, s.Stuck)
		}
	})
}

func TestAConnectionLostDuringTheFenceIsFencedAnew(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.exec()
		w.work.endTime = 5 * time.Second
		w.server.Restart()
		w.wait(2 * time.Second)
		w.net.cutAll()
		w.wait(15 * time.Second)
		w.active()
		acks := w.sent(wire.TypeGenerationAck)
		if len(acks) != 2 || acks[0].Gen == acks[1].Gen {
			t.Errorf("generationAcks %+v", acks)
		}
		w.innocent()
	})
}

func TestListedIdsThatAreNotHereAreAnsweredAfterGenerationAck(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		released := w.exec()
		w.work.remove(released.ID())
		w.outbox.Drop(released.ID()) // given up
		w.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeInstruction)})
		unseen := w.exec()
		w.server.SetFaults(refserver.Faults{})
		w.net.cutAll()
		w.wait(2 * time.Second)
		w.active()
		for call, code := range map[*refserver.Call]wire.ErrorCode{unseen: wire.CodeTargetUnavailable, released: wire.CodeOutcomeUnknown} {
			s := w.settled(call)
			if f, ok := s.Outcome.(wire.Failure); !ok || f.Code != code {
				t.Errorf("settled %+v, want %s", s.Outcome, code)
			}
		}
		w.innocent()
	})
}

// The reconnect itself gives up a result that has grown too old meanwhile.
func TestWhatIsListedAndGivenUpByTheReconnectIsAnsweredOnIt(t *testing.T) {
	simulate(t, options{server: refserver.Config{ReconnectGrace: time.Hour}}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
			_, isResult := f.(*wire.Result)
			return refserver.Action{Drop: isResult}
		}})
		w.work.done(call.ID())
		w.wait(time.Second)
		w.net.setRefuse(true)
		w.net.cutAll()
		w.wait(11 * time.Minute)
		w.server.SetFaults(refserver.Faults{})
		w.net.setRefuse(false)
		w.active()
		w.wait(time.Second)
		w.answeredAsGivenUp(call)
	})
}

// answeredAsGivenUp wants the executor to have said of everything, and of this, that it
// does not know how it ended.
func (w *world) answeredAsGivenUp(call *refserver.Call) {
	w.t.Helper()
	if left := w.server.State(w.device).Inflight; len(left) != 0 {
		w.t.Fatalf("left without an answer: %v", left)
	}
	if f, ok := w.settled(call).Outcome.(wire.Failure); !ok || f.Code != wire.CodeOutcomeUnknown || !strings.Contains(f.Message, "given up") {
		w.t.Errorf("settled %+v", f)
	}
	w.innocent()
}

// A replica that does not know the work has it ended; before all of it is dead, the
// device is back at the one that does. What was silenced cannot be given its voice back.
func TestWhatAnEarlierFenceSilencedIsAnsweredWhereItIsListedAgain(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		call := w.exec()
		w.work.endTime = time.Minute
		elsewhere := true
		w.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			ack, ok := f.(*wire.HelloAck)
			if !ok || !elsewhere {
				return refserver.Action{}
			}
			elsewhere = false
			unaware := *ack
			unaware.PendingInstructions, unaware.ChunkWatermarks = nil, nil
			raw, err := wire.AppendServer(nil, &unaware)
			if err != nil {
				t.Error(err)
			}
			return refserver.Action{Replace: raw}
		}})
		w.net.cutAll()
		w.wait(2 * time.Second)
		if p := w.last().Phase; p != link.Fencing {
			t.Fatalf("the link is %s", p)
		}
		w.net.cutAll()
		w.wait(4 * time.Second)
		w.active()
		w.wait(time.Second)
		w.answeredAsGivenUp(call)
	})
}

func TestMaxInflightIsPassedOn(t *testing.T) {
	simulate(t, options{server: refserver.Config{MaxInflight: 7}}, func(t *testing.T, w *world) {
		w.active()
		if w.work.max != 7 {
			t.Errorf("maxInflight %d", w.work.max)
		}
	})
}

func TestWhatComesBeforeGenerationAckIsNotActedOn(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		w.exec()
		w.work.endTime = 5 * time.Second
		w.server.Restart() // a fence to come, which lasts
		w.wait(3 * time.Second)
		if p := w.last().Phase; p != link.Fencing {
			t.Fatalf("the link is %s", p)
		}
		const id = "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W"
		instruct := func() {
			frame, err := wire.AppendServer(nil, &wire.Instruction{Gen: w.server.State(w.device).Gen, InstructionID: id,
				RootSessionID: "s", Kind: wire.KindExec, Args: []byte(`{"command":"x"}`), TimeoutMs: 1000})
			if err != nil {
				t.Fatal(err)
			}
			if !w.server.Inject(w.device, frame) {
				t.Fatal("there is no connection")
			}
		}
		instruct()
		w.wait(time.Second)
		if w.work.Seen(id) {
			t.Error("an instruction was taken over before generationAck")
		}
		w.wait(10 * time.Second)
		w.active()
		instruct()
		w.wait(time.Second)
		if !w.work.Seen(id) {
			t.Error("the same instruction was not taken over after generationAck")
		}
	})
}

// The reader may be handing an instruction over at the moment when the connection
// ends: its content is cut as well, or it would be waited for in vain.
func TestWhatIsHandedOverWhileTheConnectionEndsIsCutToo(t *testing.T) {
	simulate(t, options{}, func(t *testing.T, w *world) {
		w.active()
		before, during := w.work.cuts(), 0
		w.work.receive = func() {
			w.net.cutAll()
			<-time.After(20 * time.Second) // a heartbeat finds it out
			during = w.work.cuts()
		}
		w.exec()
		w.wait(30 * time.Second)
		if during == before {
			t.Fatal("the connection did not end while the instruction was handed over")
		}
		if w.work.cuts() == during {
			t.Error("the work was not told after it had taken the instruction over")
		}
	})
}
