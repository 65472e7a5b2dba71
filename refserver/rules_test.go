package refserver_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// cutOff drops the connection without a word, and waits until both ends know.
func (c *client) cutOff() {
	_ = c.ws.CloseNow()
	<-c.gone
	synctest.Wait()
}

// patient is work that no deadline of its own ends early.
var patient = refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: "sleep 1000"}, TimeoutMs: 3_600_000}

func TestR1ACommittedInstructionIsNeverSentAgain(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		k.cutOff()
		k = w.connect(epochA)
		k.silent()
		k.cutOff()
		k = w.connect(epochB)
		k.silent()
		w.settledBy(call, refserver.ByNewEpoch)
	})
}

func TestR2TheSameEpochResumesWhatIsListed(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		var got sink
		what := patient
		what.Deliver = got.take
		k, call := w.started(what)
		untouched := w.dispatch(patient)
		expect[*wire.Instruction](k)
		k.stdout(call.ID(), 0, "a")
		k.acked(0)
		k.stdout(call.ID(), 1, "b")
		k.acked(1)
		k.stdout(call.ID(), 3, "d") // above the gap: not in the watermark, but kept
		k.acked(1)
		k.cutOff()

		k = w.dial()
		ack := k.handshake(epochA)
		if !slices.Equal(ack.PendingInstructions, []string{call.ID(), untouched.ID()}) ||
			fmt.Sprint(ack.ChunkWatermarks) != fmt.Sprint(map[string]int64{call.ID(): 1, untouched.ID(): -1}) || ack.Gen != "2" {
			w.t.Fatalf("%+v", ack)
		}
		k.send(&wire.GenerationAck{Gen: k.gen})
		k.stdout(call.ID(), 2, "c")
		k.acked(3)
		k.finish(call)
		if got.String() != "abcd" {
			w.t.Fatalf("%q", got.String())
		}
		w.violated()
	})
}

func TestR2DeadlinesRunOnWhileTheDeviceIsAway(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		what := patient
		what.TimeoutMs = 10_000
		k, call := w.started(what)
		k.cutOff()
		time.Sleep(41 * time.Second)
		k = w.dial()
		if ack := k.handshake(epochA); len(ack.PendingInstructions) != 0 {
			w.t.Fatalf("%+v", ack)
		}
		w.settledBy(call, refserver.ByCeiling)
	})
	simulate(t, refserver.Config{}, func(w *world) { // another replica's memory
		k, call := w.started(patient)
		w.s.Restart()
		k.ended()
		w.settledBy(call, refserver.ByRestart)
		k = w.dial()
		if ack := k.handshake(epochA); len(ack.PendingInstructions) != 0 || ack.Gen != "2" {
			w.t.Fatalf("%+v", ack)
		}
		k.send(&wire.GenerationAck{Gen: k.gen})
		k.result(call.ID(), wire.ExecOutcome{})
		k.silent()
		w.violated(refserver.UnknownIns)
	})
}

func TestR2WorkThatIsNotListedMustBeSilent(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{TimeoutMs: 1000})
		k.cutOff()
		time.Sleep(32 * time.Second)
		k = w.connect(epochA)
		k.stdout(call.ID(), 0, "x")
		k.result(call.ID(), wire.Failf(wire.CodeTimeout, "killed"))
		expect[*wire.ResultAck](k) // absorbed, but it should not have been sent
		w.violated(refserver.Unlisted, refserver.Unlisted)
	})
}

func TestR3ANewEpochAbandonsEverythingBeforeHelloAck(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		k.cutOff()
		k = w.dial()
		ack := k.handshake(epochB)
		if len(ack.PendingInstructions) != 0 || len(ack.ChunkWatermarks) != 0 || call.State() != wire.StateTerminal {
			w.t.Fatalf("%+v, %s", ack, call.State())
		}
		w.settledBy(call, refserver.ByNewEpoch)
		k.send(&wire.GenerationAck{Gen: k.gen})
		k.result(call.ID(), wire.ExecOutcome{})
		expect[*wire.ResultAck](k) // from the memo; not believed
		w.settledBy(call, refserver.ByNewEpoch)
	})
}

func TestR4WithoutAReconnectInTheGraceTheBooksClose(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		k.cutOff()
		time.Sleep(119 * time.Second)
		k = w.dial()
		if ack := k.handshake(epochA); !slices.Equal(ack.PendingInstructions, []string{call.ID()}) {
			w.t.Fatalf("within the grace: %+v", ack)
		}
		time.Sleep(2 * time.Second) // the grace is over, and was stopped
		if call.State() != wire.StateDispatchCommitted {
			w.t.Fatalf("%s", call.State())
		}
		k.cutOff()
		start := time.Now()
		w.settledBy(call, refserver.ByReconnectGrace)
		if d := time.Since(start); d != 120*time.Second {
			w.t.Fatalf("after %v", d)
		}
		k = w.dial()
		if ack := k.handshake(epochA); len(ack.PendingInstructions) != 0 {
			w.t.Fatalf("after the grace: %+v", ack)
		}
	})
}

func TestR5ALostResultAckIsMadeUpForOnTheNextConnection(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.s.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeResultAck)})
		k, call := w.started(patient)
		k.exit(call.ID(), 0, 0)
		k.acked(0)
		k.result(call.ID(), wire.ExecOutcome{})
		k.silent()
		w.settledBy(call, refserver.ByResult)
		w.s.SetFaults(refserver.Faults{})
		k.result(call.ID(), wire.ExecOutcome{}) // in the connection
		expect[*wire.ResultAck](k)
		w.violated()
	})
}

func TestR6DeviceSeqMakesAResultIdempotent(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		release := make(chan struct{})
		what := patient
		what.Deliver = func(wire.ChunkKind, []byte) error { <-release; return nil }
		k, call := w.started(what)
		k.stdout(call.ID(), 0, "x")
		k.exit(call.ID(), 1, 0)
		synctest.Wait()
		result := func(seq int64, o wire.Outcome) {
			k.send(&wire.Result{Gen: k.gen, InstructionID: call.ID(), DeviceSeq: seq, Outcome: o})
			synctest.Wait()
		}
		result(5, wire.ExecOutcome{})
		result(5, wire.Failf(wire.CodeUnknown, "another")) // absorbed: not a new terminal
		result(4, wire.Failf(wire.CodeUnknown, "another"))
		w.violated()
		result(6, wire.Failf(wire.CodeUnknown, "a new terminal"))
		w.violated(refserver.SecondTerminal)
		close(release)
		st := w.settledBy(call, refserver.ByResult)
		if st.DeviceSeq != 6 || st.Outcome != wire.Failf(wire.CodeUnknown, "a new terminal") {
			w.t.Fatalf("%+v", st)
		}
		result(7, wire.ExecOutcome{}) // settled: nothing changes any more
		if st := w.settled(call); st.DeviceSeq != 6 {
			w.t.Fatalf("%+v", st)
		}
		w.violated(refserver.SecondTerminal, refserver.SecondTerminal)
	})
}

func TestR7ALostChunkAckIsMadeUpForByResending(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.s.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeChunkAck)})
		k, call := w.started(patient)
		for seq := range int64(3) {
			k.stdout(call.ID(), seq, "x")
		}
		k.silent()
		w.s.SetFaults(refserver.Faults{})
		k.stdout(call.ID(), 0, "x") // far below the watermark
		k.acked(2)
		k.finish(call)
		w.violated()
	})
}

func TestR8AGapFailsAlsoWhileTheDeviceIsAway(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		k.stdout(call.ID(), 1, "b")
		k.acked(-1)
		k.cutOff()
		start := time.Now()
		w.settledBy(call, refserver.ByGap)
		if d := time.Since(start); d != 30*time.Second {
			w.t.Fatalf("after %v", d)
		}
	})
}

func TestR9TheGenerationIsTheSocketsOwn(t *testing.T) {
	simulate(t, refserver.Config{FirstGeneration: 9007199254740993}, func(w *world) {
		k, call := w.started(patient)
		k.cutOff()
		k = w.connect(epochA)
		if k.gen != "9007199254740994" {
			w.t.Fatalf("gen %s", k.gen)
		}
		k.gen = "9007199254740993" // the same number, to a float
		k.exit(call.ID(), 0, 0)
		k.result(call.ID(), wire.ExecOutcome{})
		k.silent()
		w.violated(refserver.GenMismatch, refserver.GenMismatch)
		k.gen = "9007199254740994"
		k.finish(call)
	})
}

func TestR10NothingIsDispatchedBeforeGenerationAck(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.dial()
		k.handshake(epochA)
		call := w.dispatch(patient)
		time.Sleep(10 * time.Second)
		k.silent()
		if call.State() != wire.StateQueued {
			w.t.Fatalf("%s", call.State())
		}
		k.send(&wire.GenerationAck{Gen: "7"}) // not this one's
		k.silent()
		k.send(&wire.GenerationAck{Gen: k.gen})
		if in := expect[*wire.Instruction](k); in.InstructionID != call.ID() {
			w.t.Fatalf("%+v", in)
		}
		w.violated(refserver.GenMismatch)
		k.send(&wire.GenerationAck{Gen: k.gen})
		w.violated(refserver.GenMismatch, refserver.AckRepeated)
	})
}

func TestR10OutputBeforeTheFenceIsNoted(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		k.cutOff()
		k = w.dial()
		k.handshake(epochA)
		k.stdout(call.ID(), 0, "x")
		k.acked(0)
		w.violated(refserver.BeforeAck)
	})
}

func TestNoMoreThanMaxInflightAreOutstanding(t *testing.T) {
	simulate(t, refserver.Config{MaxInflight: 2}, func(w *world) {
		k := w.connect(epochA)
		var calls []*refserver.Call
		for range 4 {
			calls = append(calls, w.dispatch(patient))
		}
		expect[*wire.Instruction](k)
		expect[*wire.Instruction](k)
		k.silent()
		k.finish(calls[1])
		if in := expect[*wire.Instruction](k); in.InstructionID != calls[2].ID() || in.IssuedSeq != 3 {
			w.t.Fatalf("%+v", in)
		}
		k.silent()
		k.cutOff() // what was queued never started: safe to retry
		st := w.settledBy(calls[3], refserver.ByNeverStarted)
		if f, ok := st.Outcome.(wire.Failure); !ok || f.Code != wire.CodeTargetUnavailable || st.State != wire.StateTerminalNeverStarted {
			w.t.Fatalf("%+v", st)
		}
	})
}

func TestWhatIsNotDeclaredIsNotDispatched(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		check := func(code wire.ErrorCode, call *refserver.Call) {
			w.t.Helper()
			st := w.settledBy(call, refserver.ByNeverStarted)
			if f, ok := st.Outcome.(wire.Failure); !ok || f.Code != code {
				w.t.Fatalf("%+v", st)
			}
		}
		check(wire.CodeTargetUnavailable, w.dispatch(patient)) // not connected
		k := w.connect(epochA)
		check(wire.CodeNotSupported, w.dispatch(refserver.Dispatch{Kind: wire.KindStatBatch, Args: wire.StatBatchArgs{Paths: []string{"/"}}}))
		k.silent()
	})
}

func TestQueuedWorkThatTheNextConnectionDoesNotDeclareIsNeverSent(t *testing.T) {
	simulate(t, refserver.Config{MaxInflight: 1}, func(w *world) {
		_, call := w.started(patient)
		readLink := refserver.Dispatch{Kind: wire.KindReadLink, Args: wire.PathArgs{Path: "/l"}}
		gone, kept := w.dispatch(readLink), w.dispatch(patient)
		k := w.dial() // of the same process, while the old connection still holds the queue
		h := k.hello(expect[*wire.Challenge](k).Nonce, epochA)
		h.Supports = []string{string(wire.KindExec)}
		k.send(h)
		k.gen = expect[*wire.HelloAck](k).Gen
		st := w.settledBy(gone, refserver.ByNeverStarted)
		if f, ok := st.Outcome.(wire.Failure); !ok || f.Code != wire.CodeNotSupported {
			w.t.Fatalf("%+v", st)
		}
		k.send(&wire.GenerationAck{Gen: k.gen})
		k.finish(call)
		if in := expect[*wire.Instruction](k); in.InstructionID != kept.ID() {
			w.t.Fatalf("%+v", in)
		}
		k.silent()
	})
}

func TestR11ACancelIsOwedATerminalWithinTenSeconds(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		call.Cancel()
		call.Cancel() // at most once per generation
		if f := expect[*wire.Cancel](k); f.InstructionID != call.ID() || f.Gen != k.gen {
			w.t.Fatalf("%+v", f)
		}
		k.silent()
		start := time.Now()
		w.settledBy(call, refserver.ByCancelGrace)
		if d := time.Since(start); d != 10*time.Second {
			w.t.Fatalf("after %v", d)
		}
		w.violated(refserver.CancelUnanswered)
	})
	for _, o := range []wire.Outcome{wire.CancelledOutcome{State: wire.CancelNotStarted}, wire.CancelledOutcome{State: wire.CancelKilled}} {
		simulate(t, refserver.Config{}, func(w *world) {
			k, call := w.started(patient)
			call.Cancel()
			expect[*wire.Cancel](k)
			k.result(call.ID(), o)
			expect[*wire.ResultAck](k)
			if st := w.settledBy(call, refserver.ByResult); st.Outcome != o {
				w.t.Fatalf("%+v", st)
			}
			call.Cancel() // settled: nothing
			k.silent()
		})
	}
}

func TestR11ACancelIsReplayedAfterAReconnect(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		call.Cancel()
		expect[*wire.Cancel](k)
		time.Sleep(8 * time.Second)
		k.cutOff()
		k = w.dial()
		k.handshake(epochA)
		k.silent() // not before the fence
		k.send(&wire.GenerationAck{Gen: k.gen})
		if f := expect[*wire.Cancel](k); f.Gen != "2" {
			w.t.Fatalf("%+v", f)
		}
		start := time.Now() // the delivery restarted the grace
		w.settledBy(call, refserver.ByCancelGrace)
		if d := time.Since(start); d != 10*time.Second {
			w.t.Fatalf("after %v", d)
		}
	})
	simulate(t, refserver.Config{}, func(w *world) { // asked for while away
		k, call := w.started(patient)
		k.cutOff()
		call.Cancel()
		k = w.connect(epochA)
		expect[*wire.Cancel](k)
		k.silent()
	})
}

func TestR11ACancelOfQueuedWorkNeverReachesTheDevice(t *testing.T) {
	simulate(t, refserver.Config{MaxInflight: 1}, func(w *world) {
		k, _ := w.started(patient)
		queued := w.dispatch(patient)
		queued.Cancel()
		k.silent()
		st := w.settledBy(queued, refserver.ByQueuedCancel)
		if st.Outcome != (wire.CancelledOutcome{State: wire.CancelNotStarted}) || st.State != wire.StateTerminalNeverStarted {
			w.t.Fatalf("%+v", st)
		}
	})
}

func TestR12TheServersTimeoutIsABackstop(t *testing.T) {
	for _, c := range []struct {
		timeoutMs int64
		want      time.Duration
	}{{10_000, 40 * time.Second}, {-1, 30 * time.Second}} {
		simulate(t, refserver.Config{}, func(w *world) {
			what := patient
			what.TimeoutMs = c.timeoutMs
			k, call := w.started(what)
			stop := k.keepAlive()
			start := time.Now()
			w.settledBy(call, refserver.ByCeiling)
			if d := time.Since(start); d != c.want {
				w.t.Fatalf("after %v, want %v", d, c.want)
			}
			stop()
			k.result(call.ID(), wire.Failf(wire.CodeTimeout, "late"))
			expect[*wire.ResultAck](k) // releases the frame, no more
			w.settledBy(call, refserver.ByCeiling)
			w.violated(refserver.TimeoutUnanswered)
		})
	}
	simulate(t, refserver.Config{}, func(w *world) { // a year and more is no overflow
		what := patient
		what.TimeoutMs = wire.MaxSafeInteger
		_, call := w.started(what)
		time.Sleep(time.Second)
		if call.State() != wire.StateDispatchCommitted {
			w.t.Fatalf("%s", call.State())
		}
	})
}

// A deadline is for the device; the time that the consumer takes with the output is not the device's.
func TestADeviceThatAnsweredOwesNothingMore(t *testing.T) {
	for name, owe := range map[string]func(k *client, call *refserver.Call){
		"R12: a result":            func(*client, *refserver.Call) {},
		"R11: an answer to cancel": func(k *client, call *refserver.Call) { call.Cancel(); expect[*wire.Cancel](k) },
		"R8: a missing chunk":      func(k *client, call *refserver.Call) { k.stdout(call.ID(), 2, "c"); k.acked(0) },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				release := make(chan struct{})
				free := sync.OnceFunc(func() { close(release) })
				defer free()
				k, call := w.started(refserver.Dispatch{TimeoutMs: 1000, Deliver: func(wire.ChunkKind, []byte) error { <-release; return nil }})
				k.stdout(call.ID(), 0, "a")
				k.acked(0)
				owe(k, call)
				answer := wire.Failf(wire.CodeTimeout, "ended after 1 s")
				k.result(call.ID(), answer)
				time.Sleep(40 * time.Second) // every deadline, but not the silence of the device
				call.Cancel()
				k.silent() // there is nothing left to be cancelled
				free()
				expect[*wire.ResultAck](k)
				if st := w.settledBy(call, refserver.ByResult); st.Outcome != answer {
					w.t.Fatalf("%+v", st)
				}
				w.violated()
			})
		})
	}
}

// keepAlive sends heartbeats until stopped.
func (c *client) keepAlive() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for seq := int64(0); ; seq++ {
			raw := fmt.Sprintf(`{"t":"heartbeat","gen":%q,"seq":%d,"inflight":[]}`, c.gen, seq)
			if c.ws.Write(c.w.t.Context(), websocket.MessageText, []byte(raw)) != nil {
				return
			}
			select {
			case <-time.After(15 * time.Second):
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

func TestR13EachByeClosesTheConnection(t *testing.T) {
	for _, c := range []struct {
		reason  wire.ByeReason
		do      func(w *world)
		settled refserver.SettledBy
	}{
		{wire.ByeRevoked, func(w *world) { w.s.Revoke(w.device) }, refserver.ByRevoked},
		{wire.ByeSuperseded, func(w *world) { w.s.Supersede(w.device) }, refserver.BySuperseded},
		{wire.ByeDraining, func(w *world) { w.s.Drain() }, refserver.ByReconnectGrace},
		{"unheard of", func(w *world) { w.s.Bye(w.device, "unheard of") }, refserver.ByReconnectGrace},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				k, call := w.started(patient)
				c.do(w)
				if bye := expect[*wire.Bye](k); bye.Reason != c.reason || bye.Gen != k.gen {
					w.t.Fatalf("%+v", bye)
				}
				k.ended()
				w.settledBy(call, c.settled)
				w.violated()
			})
		})
	}
}

func TestR14ThreeSilentIntervalsEndTheConnection(t *testing.T) {
	simulate(t, refserver.Config{Heartbeat: 2 * time.Second}, func(w *world) {
		k, call := w.started(patient)
		for seq := range int64(3) { // any frame will do
			time.Sleep(5900 * time.Millisecond)
			k.stdout(call.ID(), seq, "x")
			k.acked(seq)
		}
		start := time.Now()
		k.ended()
		if d := time.Since(start); d != 6*time.Second {
			w.t.Fatalf("closed after %v", d)
		}
		w.audited(refserver.Silent)
		if call.State() != wire.StateDispatchCommitted {
			w.t.Fatalf("%s", call.State())
		}
		k = w.dial() // the work is in the reconnect grace
		if ack := k.handshake(epochA); !slices.Equal(ack.PendingInstructions, []string{call.ID()}) {
			w.t.Fatalf("%+v", ack)
		}
	})
}

func TestR15GoodbyeStopsDispatchAndCollectsResults(t *testing.T) {
	graceMs := int64(20_000)
	for _, c := range []struct {
		reason wire.GoodbyeReason
		grace  *int64
		want   time.Duration
	}{{wire.GoodbyeShutdown, &graceMs, 20 * time.Second}, {wire.GoodbyeSleep, nil, 120 * time.Second}, {wire.GoodbyeUserStop, new(int64), 0}} {
		t.Run(string(c.reason), func(t *testing.T) {
			simulate(t, refserver.Config{MaxInflight: 1, Heartbeat: time.Minute}, func(w *world) {
				k, call := w.started(patient)
				queued := w.dispatch(patient)
				k.send(&wire.Goodbye{Gen: k.gen, Reason: c.reason, GraceMs: c.grace})
				start := time.Now()
				w.settledBy(queued, refserver.ByNeverStarted)
				w.settledBy(w.dispatch(patient), refserver.ByNeverStarted)
				if c.want > 0 {
					k.finish(call)
				}
				k.silent()
				k.ended()
				if d := time.Since(start); d != c.want {
					w.t.Fatalf("closed after %v, want %v", d, c.want)
				}
				if st := w.s.State(w.device); st.Goodbye != c.reason {
					w.t.Fatalf("%+v", st)
				}
				w.violated()
			})
		})
	}
}

func TestAStragglerIsSentAfterGoodbye(t *testing.T) {
	simulate(t, refserver.Config{MaxInflight: 1}, func(w *world) {
		k, call := w.started(patient)
		what := patient
		what.Straggler = true
		queued := w.dispatch(what)
		k.send(&wire.Goodbye{Gen: k.gen, Reason: wire.GoodbyeShutdown})
		k.finish(call)
		if in := expect[*wire.Instruction](k); in.InstructionID != queued.ID() {
			w.t.Fatalf("%+v", in)
		}
		k.result(queued.ID(), wire.Failf(wire.CodeTargetUnavailable, "leaving"))
		expect[*wire.ResultAck](k)
		w.settledBy(queued, refserver.ByResult)
	})
}
