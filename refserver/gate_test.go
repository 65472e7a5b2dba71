package refserver_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// The forms of admission.json.
type (
	gateInput struct {
		Phase           string
		Gen             json.Number
		Current, Leased *bool
		Instruction     gateBooks
		Frame           map[string]any
	}
	gateBooks struct {
		State, Device string
		Since         int
		Chunks        []int64
		Answered      bool
	}
	gateExpect struct {
		Refused         refserver.Reason
		Closes, Settles bool
		Ack             wire.ServerFrameType
	}
)

func TestFramesAreAdmittedAsTheVectorsSay(t *testing.T) {
	cases, err := testvectors.Cases[gateInput, gateExpect]("admission.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range cases {
		t.Run(v.Name, func(t *testing.T) {
			in, want := v.Input, v.Expect
			cfg := refserver.Config{FirstGeneration: 7, MaxInflight: 1}
			if in.Gen != "" {
				n, err := in.Gen.Int64()
				if err != nil {
					t.Fatal(err)
				}
				cfg.FirstGeneration = uint64(n)
			}
			if in.Leased != nil && !*in.Leased {
				cfg.Lease = time.Second
			}
			simulate(t, cfg, func(w *world) {
				release := make(chan struct{})
				k, call := w.arrange(in, release)
				before := len(w.s.Audit())
				k.text(in.text(w.t, call))
				synctest.Wait()

				var refused []refserver.Reason
				for _, a := range w.s.Audit()[before:] {
					if a.Refused {
						refused = append(refused, a.Reason)
					}
				}
				switch {
				case want.Refused == "" && len(refused) > 0, want.Refused != "" && (len(refused) != 1 || refused[0] != want.Refused):
					w.t.Errorf("refused for %q, want %q", refused, want.Refused)
				}
				if want.Closes {
					k.ended()
				} else {
					k.isOpen()
				}
				if got := k.said(); got != want.Ack {
					w.t.Errorf("answered by %q, want %q", got, want.Ack)
				}
				if in.Phase == "helloInFlight" { // the hello is answered all the same
					expect[*wire.HelloAck](k)
				}
				close(release)
				if want.Settles {
					st := w.settled(call)
					if f, ok := st.Outcome.(wire.Failure); !ok || f.Code != wire.CodeOutcomeUnknown {
						w.t.Errorf("settled by %s: %+v", st.By, st.Outcome)
					}
				} else if call != nil && in.Instruction.State == "inFlight" && !in.Instruction.Answered && want.Ack != wire.TypeResultAck {
					if got := call.State(); got != wire.StateDispatchCommitted {
						w.t.Errorf("the instruction is %s", got)
					}
				}
			})
		})
	}
}

// arrange makes the case's situation: the socket that will speak, and its instruction, if
// the books are to know it. An instruction whose result is being accepted waits for release.
func (w *world) arrange(in gateInput, release <-chan struct{}) (*client, *refserver.Call) {
	w.t.Helper()
	if in.Phase != "established" {
		k := w.dial()
		nonce := expect[*wire.Challenge](k).Nonce
		if in.Phase == "helloInFlight" {
			w.s.SetFaults(refserver.Faults{HelloDelay: time.Second})
			k.send(k.hello(nonce, epochA))
			synctest.Wait()
		}
		return k, nil
	}
	k := w.connect(epochA)
	owner := k
	if in.Instruction.Device == "other" {
		owner = w.dial()
		owner.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("o", 32)))
		owner.device = w.addDevice(owner.key)
		owner.handshake(epochB)
		owner.send(&wire.GenerationAck{Gen: owner.gen})
		synctest.Wait()
	}
	call := owner.books(in.Instruction, release)
	if in.Current != nil && !*in.Current { // its bye is held back, so that it can speak once more
		w.s.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			if _, isBye := f.(*wire.Bye); isBye {
				return refserver.Action{Delay: time.Second}
			}
			return refserver.Action{}
		}})
		w.connect(epochA)
	}
	if in.Leased != nil && !*in.Leased {
		time.Sleep(2 * time.Second)
	}
	return k, call
}

// books makes what the case's books say of an instruction of this client's device.
func (c *client) books(is gateBooks, release <-chan struct{}) *refserver.Call {
	c.w.t.Helper()
	dispatch := func() *refserver.Call {
		what := patient
		if is.Answered {
			what.Deliver = func(wire.ChunkKind, []byte) error { <-release; return nil }
		}
		call, err := c.w.s.Dispatch(c.w.t.Context(), c.device, what)
		if err != nil {
			c.w.t.Fatal(err)
		}
		return call
	}
	switch is.State {
	case "queued":
		dispatch() // takes the only slot
		expect[*wire.Instruction](c)
		return dispatch()
	case "settled":
		first := dispatch()
		expect[*wire.Instruction](c)
		c.finish(first)
		for range is.Since {
			later := dispatch()
			expect[*wire.Instruction](c)
			c.finish(later)
		}
		return first
	case "inFlight":
		call := dispatch()
		expect[*wire.Instruction](c)
		for _, seq := range is.Chunks {
			c.stdout(call.ID(), seq, "x")
			expect[*wire.ChunkAck](c)
		}
		if is.Answered {
			c.result(call.ID(), wire.Failf(wire.CodeUnknown, "m"))
			c.silent()
		}
		return call
	}
	return nil
}

// text is the frame, with the instruction's own id in place of the vector's.
func (in gateInput) text(t *testing.T, call *refserver.Call) string {
	t.Helper()
	if h, ok := in.Frame["dataHex"].(string); ok {
		data, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		in.Frame["dataB64"] = base64.StdEncoding.EncodeToString(data)
		delete(in.Frame, "dataHex")
	}
	if call != nil && in.Frame["instructionId"] != nil {
		in.Frame["instructionId"] = call.ID()
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(in.Frame); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// said is the type of the one frame that has come, or "".
func (c *client) said() wire.ServerFrameType {
	select {
	case f, ok := <-c.frames:
		if ok {
			return f.ServerType()
		}
	default:
	}
	return ""
}
