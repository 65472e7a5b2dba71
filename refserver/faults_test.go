package refserver_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestFaultsOfTheHandshake(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.s.SetFaults(refserver.Faults{NoChallenge: true})
		k := w.dial()
		time.Sleep(4 * time.Second)
		k.silent()
		k.isOpen()
		k.ended()

		w.s.SetFaults(refserver.Faults{NoHelloAnswer: true})
		k = w.dial()
		k.send(k.hello(expect[*wire.Challenge](k).Nonce, epochA))
		time.Sleep(4 * time.Second)
		k.silent()
		k.isOpen()
		k.ended()

		for _, code := range wire.HelloRejectCodes() {
			w.s.SetFaults(refserver.Faults{RejectHello: code})
			k := w.dial()
			if got := k.rejected(epochA); got != code {
				w.t.Fatalf("%s, want %s", got, code)
			}
		}
		w.s.SetFaults(refserver.Faults{HelloDelay: 4 * time.Second})
		start := time.Now()
		w.dial().handshake(epochA)
		if d := time.Since(start); d != 4*time.Second {
			w.t.Fatalf("answered after %v", d)
		}
		w.violated() // all of the server's making
	})
}

func TestFaultsOnFrames(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.s.SetFaults(refserver.Faults{Outgoing: refserver.Duplicate(wire.TypeInstruction)})
		k, call := w.started(patient)
		if in := expect[*wire.Instruction](k); in.InstructionID != call.ID() {
			w.t.Fatalf("%+v", in)
		}
		w.s.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			if f.ServerType() == wire.TypeChunkAck {
				return refserver.Action{Replace: []byte(`{"t":"never heard of"}`), Delay: time.Second}
			}
			return refserver.Action{}
		}})
		k.stdout(call.ID(), 0, "x")
		start := time.Now()
		if u := expect[*wire.Unknown](k); u.Type != "never heard of" || time.Since(start) != time.Second {
			w.t.Fatalf("%+v after %v", u, time.Since(start))
		}
		w.s.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
			c, isChunk := f.(*wire.Chunk)
			return refserver.Action{Drop: isChunk && c.StreamSeq == 1, Cut: isChunk && c.StreamSeq == 2}
		}})
		k.stdout(call.ID(), 1, "x")
		k.silent()
		if call.Watermark() != 0 {
			w.t.Fatalf("watermark %d", call.Watermark())
		}
		_ = k.ws.Write(w.t.Context(), 1, []byte(`{"t":"chunk","gen":"1","instructionId":"`+call.ID()+`","streamSeq":2,"kind":"stdout","dataB64":""}`))
		k.ended()
		synctest.Wait()
		if st := w.s.State(w.device); st.Connected {
			w.t.Fatalf("%+v", st)
		}
	})
}

func TestRawMessagesAreInjected(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		if w.s.Inject(w.device, []byte("{}")) {
			w.t.Fatal("injected into nothing")
		}
		k := w.connect(epochA)
		w.s.Inject(w.device, []byte(`{"t":"ping"}`))
		expect[*wire.Ping](k)
		w.s.InjectBinary(w.device, []byte(`{"t":"ping"}`))
		expect[*wire.Ping](k)
	})
}

func TestAConnectionIsCutAtAnyByte(t *testing.T) {
	for n := range int64(60) {
		simulate(t, refserver.Config{}, func(w *world) {
			k, call := w.started(patient)
			if !w.s.CutAfter(w.device, n) {
				w.t.Fatal("nothing to cut")
			}
			_ = k.ws.Write(w.t.Context(), 1, []byte(`{"t":"heartbeat","gen":"1","seq":0,"inflight":[]}`))
			k.ended()
			synctest.Wait()
			k = w.dial()
			if ack := k.handshake(epochA); len(ack.PendingInstructions) != 1 || ack.PendingInstructions[0] != call.ID() {
				w.t.Fatalf("%+v", ack)
			}
			w.violated()
		})
	}
	simulate(t, refserver.Config{}, func(w *world) {
		if w.s.CutAfter(w.device, 1) || w.s.Drop(w.device) {
			w.t.Fatal("cut without a connection")
		}
		k := w.connect(epochA)
		if !w.s.Drop(w.device) {
			w.t.Fatal("nothing to drop")
		}
		k.ended()
	})
}

func TestRestartForgetsMemoryAndKeepsTheRegistry(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		done := w.dispatch(patient)
		expect[*wire.Instruction](k)
		k.finish(done)
		before := w.s.IssueToken("u")
		w.s.Restart()
		k.ended()
		w.settledBy(call, refserver.ByRestart)
		k = w.connect(epochA)
		if k.gen != "2" { // the same device, its generations going on
			w.t.Fatalf("gen %s", k.gen)
		}
		k.result(done.ID(), wire.ExecOutcome{})
		k.silent() // the memo is empty
		w.violated(refserver.UnknownIns)
		// The token was in the database.
		body := `{"token":"` + before + `","pubkey":"` + pubkey(9) + `","platformOs":"linux","workspaceRoot":"/"}`
		req, err := http.NewRequestWithContext(w.t.Context(), "POST", "http://refserver.invalid/v1/devices/enroll", strings.NewReader(body))
		if err != nil {
			w.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer u")
		resp, err := w.net.http().Do(req)
		if err != nil {
			w.t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			w.t.Fatalf("enroll: %d", resp.StatusCode)
		}
	})
}

func TestWorkIsWrittenOffBehindTheDevicesBack(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		w.s.WriteOff(w.device, refserver.ByCeiling)
		w.settledBy(call, refserver.ByCeiling)
		k.stdout(call.ID(), 0, "x")
		k.silent() // neither told, nor acknowledged
		k.result(call.ID(), wire.ExecOutcome{})
		expect[*wire.ResultAck](k) // from the memo, on the same connection
		w.violated()
	})
}

func TestCloseSettlesEverythingAndRefusesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, refserver.Config{MaxInflight: 1})
		k, call := w.started(patient)
		queued := w.dispatch(patient)
		w.close()
		k.ended()
		w.settledBy(call, refserver.ByShutdown)
		w.settledBy(queued, refserver.ByNeverStarted)
		if _, err := w.s.Dispatch(t.Context(), w.device, patient); !errors.Is(err, refserver.ErrClosed) {
			t.Fatalf("%v", err)
		}
		if err := w.s.WaitActive(t.Context(), w.device); !errors.Is(err, refserver.ErrClosed) {
			t.Fatalf("%v", err)
		}
	})
}

func TestAPeerThatNeverReadsHoldsUpNothing(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		deaf, _, err := websocket.Dial(w.t.Context(), "ws://refserver.invalid"+wire.WSPath, &websocket.DialOptions{HTTPClient: w.net.http()})
		if err != nil {
			w.t.Fatal(err)
		}
		defer deaf.CloseNow()
		synctest.Wait() // the challenge is stuck in its write
		k, call := w.started(patient)
		k.finish(call)
		start := time.Now()
		if err := w.s.Close(); err != nil || time.Since(start) > 10*time.Second {
			w.t.Fatalf("Close took %v: %v", time.Since(start), err)
		}
	})
}

func TestWaitActiveWaitsForGenerationAck(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.dial()
		k.handshake(epochA)
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := w.s.WaitActive(ctx, w.device); !errors.Is(err, context.DeadlineExceeded) {
			w.t.Fatalf("%v", err)
		}
		active := make(chan error, 1)
		go func() { active <- w.s.WaitActive(w.t.Context(), w.device) }()
		synctest.Wait()
		k.send(&wire.GenerationAck{Gen: k.gen})
		if err := <-active; err != nil {
			w.t.Fatal(err)
		}
		if st := w.s.State(w.device); !st.Active || st.Gen != k.gen || st.Epoch != epochA || st.Connections != 1 {
			w.t.Fatalf("%+v", st)
		}
	})
}

// The library calls a message complete when its connection ends between two of its
// own reads; a server that took it for one would blame an innocent device.
func TestAMessageCutOffWithItsConnectionIsNobodysFault(t *testing.T) {
	for n := range 120 {
		simulate(t, refserver.Config{}, func(w *world) {
			c := w.connect(epochA)
			w.net.last.left = n
			raw, err := wire.AppendDevice(nil, &wire.Heartbeat{Gen: c.gen, Inflight: []string{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.ws.Write(w.t.Context(), websocket.MessageText, raw); err == nil && n < len(raw) {
				t.Fatalf("%d bytes of %d went out as a whole frame", n, len(raw))
			}
			synctest.Wait()
			for _, v := range w.s.Audit() {
				t.Errorf("cut after %d bytes: %v", n, v)
			}
		})
	}
}
