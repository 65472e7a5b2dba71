package refserver_test

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// started is a connection with one exec in flight.
func (w *world) started(what refserver.Dispatch) (*client, *refserver.Call) {
	w.t.Helper()
	c := w.connect(epochA)
	call := w.dispatch(what)
	expect[*wire.Instruction](c)
	return c, call
}

// finish answers an exec well, from the next chunk on.
func (c *client) finish(call *refserver.Call) {
	c.w.t.Helper()
	c.exit(call.ID(), call.Watermark()+1, 0)
	expect[*wire.ChunkAck](c)
	c.result(call.ID(), wire.ExecOutcome{})
	expect[*wire.ResultAck](c)
	c.w.settledBy(call, refserver.ByResult)
}

func TestAMalformedFrameAfterTheHandshakeCostsTheFrameOnly(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		binary    bool
		want      refserver.Reason
	}{
		{"not JSON", "{", false, refserver.NotJSON},
		{"binary", `{"t":"goodbye"}`, true, refserver.NotJSON},
		{"not an object", "7", false, refserver.NotObject},
		{"unknown type", `{"t":"hullo"}`, false, refserver.UnknownType},
		{"missing member", `{"t":"goodbye","gen":"1"}`, false, refserver.BadShape},
		{"gen a number", `{"t":"goodbye","gen":1,"reason":"sleep"}`, false, refserver.BadShape},
		{"gen with a zero in front", `{"t":"goodbye","gen":"01","reason":"sleep"}`, false, refserver.BadShape},
		{"fraction", `{"t":"heartbeat","gen":"1","seq":1.5,"inflight":[]}`, false, refserver.BadShape},
		{"sloppy base64", `{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":0,"kind":"stdout","dataB64":"aGk"}`, false, refserver.BadShape},
		{"loose last bits", `{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":0,"kind":"stdout","dataB64":"aGl="}`, false, refserver.BadShape},
		{"url alphabet", `{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":0,"kind":"stdout","dataB64":"-_-_"}`, false, refserver.BadShape},
		{"exit with data", `{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":0,"kind":"exit","exitCode":0,"dataB64":""}`, false, refserver.BadShape},
		{"output with a code", `{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":0,"kind":"stdout","exitCode":0,"dataB64":""}`, false, refserver.BadShape},
		{"error code outside the set", `{"t":"result","gen":"1","instructionId":"ID","deviceSeq":1,"outcome":{"ok":false,"errorCode":"oops","message":"m"}}`, false, refserver.BadShape},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				k, call := w.started(refserver.Dispatch{})
				typ := websocket.MessageText
				if c.binary {
					typ = websocket.MessageBinary
				}
				k.message(typ, []byte(strings.ReplaceAll(c.raw, "ID", call.ID())))
				k.silent()
				k.isOpen()
				w.violated(c.want)
				k.finish(call)
			})
		})
	}
}

func TestAMessageAbove1MiBCostsTheConnection(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{TimeoutMs: 600_000})
		hb := `{"t":"heartbeat","gen":"1","seq":0,"inflight":[]}`
		k.text(hb + strings.Repeat(" ", wire.MaxFrameBytes-len(hb)))
		k.silent()
		k.isOpen()
		w.violated()
		_ = k.ws.Write(w.t.Context(), websocket.MessageText, []byte(hb+strings.Repeat(" ", wire.MaxFrameBytes-len(hb)+1)))
		if code := k.ended(); code != websocket.StatusMessageTooBig {
			w.t.Fatalf("close code %d, want 1009", code)
		}
		w.violated(refserver.Oversize)
		w.settledBy(call, refserver.ByReconnectGrace) // the ordinary path of a lost connection
	})
}

func TestFramesOfAnotherGenerationAreVoid(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		k.gen = "2"
		k.exit(call.ID(), 0, 0)
		k.result(call.ID(), wire.ExecOutcome{})
		k.send(&wire.Goodbye{Gen: "0", Reason: wire.GoodbyeShutdown})
		k.silent()
		w.violated(refserver.GenMismatch, refserver.GenMismatch, refserver.GenMismatch)
		k.gen = "1"
		k.finish(call)
	})
}

func TestASupersededSocketIsVoid(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		// The bye is held back, so that the old socket can speak after it.
		w.s.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			if _, isBye := f.(*wire.Bye); isBye {
				return refserver.Action{Delay: time.Second}
			}
			return refserver.Action{}
		}})
		old, call := w.started(refserver.Dispatch{})
		k := w.connect(epochA)
		old.exit(call.ID(), 0, 0)
		old.result(call.ID(), wire.ExecOutcome{})
		if v := w.audited(refserver.GenMismatch); !v.Excused || v.Gen != "1" {
			w.t.Fatalf("%+v", v)
		}
		w.violated() // it cannot know yet
		if call.Watermark() != -1 {
			w.t.Fatal("a chunk of the old socket was accepted")
		}
		k.finish(call)
	})
}

func TestAnInstructionOfAnotherDeviceIsRefused(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		other := w.dial()
		other.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", 32)))
		other.device = w.addDevice(other.key)
		other.handshake(epochB)
		other.send(&wire.GenerationAck{Gen: other.gen})
		other.result(call.ID(), wire.ExecOutcome{})
		other.silent()
		w.violated(refserver.DeviceMismatch)
		k.finish(call)
		other.result(call.ID(), wire.ExecOutcome{}) // from the memo, too
		other.silent()
		w.violated(refserver.DeviceMismatch, refserver.DeviceMismatch)
	})
}

func TestAQueuedInstructionIsNotCommitted(t *testing.T) {
	simulate(t, refserver.Config{MaxInflight: 1}, func(w *world) {
		k, _ := w.started(refserver.Dispatch{})
		queued := w.dispatch(refserver.Dispatch{})
		if queued.State() != wire.StateQueued {
			w.t.Fatalf("state %s", queued.State())
		}
		k.result(queued.ID(), wire.ExecOutcome{}) // it guessed the id
		k.silent()
		w.violated(refserver.NotCommitted)
	})
}

func TestAnUnheardOfInstructionIsRefused(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		k.result("ins_01J8ZQ4T9X0000000000000000", wire.VoidOutcome{})
		k.stdout("ins_01J8ZQ4T9X0000000000000000", 0, "x")
		k.silent()
		k.isOpen()
		w.violated(refserver.UnknownIns, refserver.UnknownIns)
	})
}

func TestAResultNeedsTheLease(t *testing.T) {
	simulate(t, refserver.Config{Lease: 10 * time.Second}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		k.exit(call.ID(), 0, 0)
		expect[*wire.ChunkAck](k)
		time.Sleep(11 * time.Second)
		k.result(call.ID(), wire.ExecOutcome{})
		k.silent() // no ack
		w.settledBy(call, refserver.ByLeaseLost)
		w.violated(refserver.GenMismatch)
	})
}

func TestTheMemoAbsorbsLateFramesOfTheLast512(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, first := w.started(refserver.Dispatch{})
		k.finish(first)
		k.result(first.ID(), wire.ExecOutcome{ExitCode: 9}) // changes nothing
		if a := expect[*wire.ResultAck](k); a.InstructionID != first.ID() {
			w.t.Fatalf("%+v", a)
		}
		k.exit(first.ID(), 0, 0) // ignored: no ack, no error
		k.silent()
		w.violated()
		if st := w.settled(first); st.Outcome != (wire.ExecOutcome{}) {
			w.t.Fatalf("%+v", st)
		}
		for range 511 {
			call := w.dispatch(refserver.Dispatch{})
			expect[*wire.Instruction](k)
			k.finish(call)
		}
		k.result(first.ID(), wire.ExecOutcome{})
		expect[*wire.ResultAck](k)
		call := w.dispatch(refserver.Dispatch{})
		expect[*wire.Instruction](k)
		k.finish(call)
		k.result(first.ID(), wire.ExecOutcome{}) // the 513th has pushed it out
		k.exit(first.ID(), 0, 0)
		k.silent()
		w.violated(refserver.UnknownIns, refserver.UnknownIns)
	})
}

func TestHeartbeatsAreChecked(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		beat := func(seq int64, ids ...string) {
			k.send(&wire.Heartbeat{Gen: k.gen, Seq: seq, Inflight: append([]string{}, ids...)})
		}
		beat(0, call.ID())
		beat(5)
		w.violated()
		if st := w.s.State(w.device); st.LastHeartbeat == nil || st.LastHeartbeat.Seq != 5 {
			w.t.Fatalf("%+v", st)
		}
		beat(5)
		beat(6, "ins_unknown")
		w.violated(refserver.HeartbeatSeq, refserver.HeartbeatInflight)
		k.isOpen()
	})
}

func TestFramesNeverCarryContentIntoTheRecord(t *testing.T) {
	const secret = "TOP-SECRET"
	var (
		mu   sync.Mutex // the directions trace from goroutines of their own
		seen []string
	)
	simulate(t, refserver.Config{Trace: func(d refserver.Direction, f refserver.Frame, raw []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %+v", d, f))
	}}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		k.stdout(call.ID(), 0, secret)
		synctest.Wait()
		k.stdout(call.ID(), 0, secret+"changed")
		k.text(`{"t":"` + secret + `"}`)
		k.text(`{"t":"goodbye","gen":"1","reason":"` + secret + `"}`)
		w.violated(refserver.ChunkChanged, refserver.UnknownType, refserver.BadShape)
		mu.Lock()
		defer mu.Unlock()
		for _, v := range w.s.Audit() {
			seen = append(seen, v.String())
		}
	})
	for _, line := range seen {
		if strings.Contains(line, secret) {
			t.Errorf("content in %s", line)
		}
	}
	if len(seen) < 10 {
		t.Errorf("the trace saw %d frames", len(seen))
	}
}
