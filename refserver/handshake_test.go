package refserver_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestTheChallengeComesAtOnceAndIsNew(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		start := time.Now()
		a, b := expect[*wire.Challenge](w.dial()), expect[*wire.Challenge](w.dial())
		if a.ProtocolVersion != 1 || a.Nonce == "" || a.Nonce == b.Nonce || time.Since(start) != 0 {
			t.Fatalf("%+v, %+v after %v", a, b, time.Since(start))
		}
	})
}

func TestTheHandshakeHasFiveSeconds(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		start := time.Now()
		w.dial().ended()
		if d := time.Since(start); d < 5*time.Second || d > 10*time.Second {
			t.Fatalf("closed after %v", d)
		}
		w.audited(refserver.HandshakeTooLate)

		c := w.dial()
		time.Sleep(4999 * time.Millisecond)
		c.handshake(epochA)
		time.Sleep(10 * time.Second)
		c.isOpen()
	})
}

// padded is a hello frame of exactly n bytes.
func (c *client) padded(nonce string, n int) string {
	raw, err := wire.AppendDevice(nil, c.hello(nonce, epochA))
	if err != nil {
		c.w.t.Fatal(err)
	}
	return string(raw) + strings.Repeat(" ", n-len(raw))
}

func TestAFrameBeforeTheHandshakeHasAtMost4096Bytes(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		c := w.dial()
		c.text(c.padded(expect[*wire.Challenge](c).Nonce, 4096))
		expect[*wire.HelloAck](c)
		w.violated()

		d := w.dial()
		d.text(d.padded(expect[*wire.Challenge](d).Nonce, 4097))
		d.ended()
		w.violated(refserver.FrameTooLarge)
	})
}

func TestAMalformedFrameBeforeTheHandshakeCostsTheConnection(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		binary    bool
		want      refserver.Reason
	}{
		{"not JSON", "{", false, refserver.NotJSON},
		{"binary", "{}", true, refserver.NotJSON},
		{"not an object", "[]", false, refserver.NotObject},
		{"no type", "{}", false, refserver.UnknownType},
		{"type in other case", `{"T":"hello"}`, false, refserver.UnknownType},
		{"a server's type", `{"t":"challenge"}`, false, refserver.UnknownType},
		{"hello without members", `{"t":"hello"}`, false, refserver.BadShape},
		{"not a hello", `{"t":"heartbeat","gen":"1","seq":0,"inflight":[]}`, false, refserver.PreHello},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				k := w.dial()
				expect[*wire.Challenge](k)
				typ := websocket.MessageText
				if c.binary {
					typ = websocket.MessageBinary
				}
				k.message(typ, []byte(c.raw))
				k.ended()
				w.violated(c.want)
			})
		})
	}
}

func TestAStrayFrameWhileAHelloIsAnsweredIsDropped(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.s.SetFaults(refserver.Faults{HelloDelay: time.Second})
		c := w.dial()
		c.send(c.hello(expect[*wire.Challenge](c).Nonce, epochA))
		c.send(&wire.GenerationAck{Gen: "1"})
		w.violated(refserver.PreHello)
		if ack := expect[*wire.HelloAck](c); ack.Gen != "1" {
			t.Fatalf("%+v", ack)
		}
		c.isOpen()
	})
}

func TestASecondHelloIsDropped(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		c := w.dial()
		nonce := expect[*wire.Challenge](c).Nonce
		c.send(c.hello(nonce, epochA))
		expect[*wire.HelloAck](c)
		c.send(c.hello(nonce, epochA))
		c.silent()
		c.isOpen()
		w.violated(refserver.PreHello)
	})
}

func TestAuthFailedDoesNotSayWhy(t *testing.T) {
	stranger := ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", 32)))
	for name, spoil := range map[string]func(c *client, h *wire.Hello){
		"unknown device":      func(c *client, h *wire.Hello) { h.DeviceID = "dev_01J8ZQ4T9X0000000000000000" },
		"malformed device id": func(c *client, h *wire.Hello) { h.DeviceID = "01J8" },
		"malformed epoch":     func(c *client, h *wire.Hello) { h.Epoch = strings.ToLower(h.Epoch) },
		"another epoch":       func(c *client, h *wire.Hello) { h.Epoch = epochB },
		"not base64":          func(c *client, h *wire.Hello) { h.SignatureB64 = "?" },
		"another key":         func(c *client, h *wire.Hello) { c.key = stranger; *h = *c.hello("x", epochA) },
		"another socket's nonce": func(c *client, h *wire.Hello) {
			*h = *c.hello(expect[*wire.Challenge](c.w.dial()).Nonce, epochA)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				c := w.dial()
				h := c.hello(expect[*wire.Challenge](c).Nonce, epochA)
				spoil(c, h)
				c.send(h)
				if r := expect[*wire.HelloReject](c); r.Code != wire.RejectAuthFailed || r.MinProtocolVersion != nil {
					t.Fatalf("%+v", r)
				}
				c.ended()
				w.violated(refserver.HelloRejected)
			})
		})
	}
}

func TestTheNonceIsUsedUpByTheFirstHello(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		c := w.dial()
		nonce := expect[*wire.Challenge](c).Nonce
		h := c.hello(nonce, epochA)
		h.SignatureB64 = "?"
		c.send(h)
		expect[*wire.HelloReject](c)
		_ = c.ws.Write(w.t.Context(), websocket.MessageText, []byte(c.padded(nonce, 1000))) // may find it closed
		c.ended()
		if st := w.s.State(w.device); st.Connections != 0 {
			t.Fatal("a second hello on a socket was accepted")
		}
	})
}

func TestVersionsOutsideTheRangeAreRejectedLoudly(t *testing.T) {
	for _, c := range []struct{ version, low, high, minimum int64 }{{1, 2, 3, 2}, {0, 1, 1, 1}, {2, 1, 1, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			simulate(t, refserver.Config{MinProtocolVersion: c.low, ProtocolVersion: c.high}, func(w *world) {
				k := w.dial()
				h := k.hello(expect[*wire.Challenge](k).Nonce, epochA)
				h.ProtocolVersion = c.version
				k.send(h)
				r := expect[*wire.HelloReject](k)
				if r.Code != wire.RejectProtocolVersionUnsupported || r.MinProtocolVersion == nil || *r.MinProtocolVersion != c.minimum {
					t.Fatalf("%+v", r)
				}
				k.ended()
			})
		})
	}
}

func (c *client) rejected(epoch string) wire.HelloRejectCode {
	c.w.t.Helper()
	c.send(c.hello(expect[*wire.Challenge](c).Nonce, epoch))
	code := expect[*wire.HelloReject](c).Code
	c.ended()
	return code
}

func TestARevokedDeviceIsToldSoForEver(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.s.Revoke(w.device)
		for range 2 {
			if code := w.dial().rejected(epochA); code != wire.RejectRevoked {
				t.Fatalf("%s", code)
			}
		}
		// Who cannot sign for it learns nothing.
		c := w.dial()
		c.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", 32)))
		if code := c.rejected(epochA); code != wire.RejectAuthFailed {
			t.Fatalf("%s", code)
		}
	})
}

func TestADrainingServerTakesNoNewConnection(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		waiting := w.dial()
		nonce := expect[*wire.Challenge](waiting).Nonce
		w.s.Drain()
		waiting.send(waiting.hello(nonce, epochA))
		if r := expect[*wire.HelloReject](waiting); r.Code != wire.RejectDraining {
			t.Fatalf("%+v", r)
		}
		if _, status, err := w.tryDial(wire.WSPath); err == nil || status != 503 {
			t.Fatalf("upgrade: %d %v, want 503", status, err)
		}
		w.s.Restart()
		w.connect(epochA)
	})
}

func TestTheUpgradePathIsExactAndPreAuthSocketsAreCapped(t *testing.T) {
	simulate(t, refserver.Config{MaxPreAuth: 2, WSPath: "/ws"}, func(w *world) {
		if _, status, err := w.tryDial("/other"); err == nil || status != 404 {
			t.Fatalf("%d %v, want 404", status, err)
		}
		a, _, err1 := w.tryDial("/ws")
		_, _, err2 := w.tryDial("/ws")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if _, status, err := w.tryDial("/ws"); err == nil || status != 503 {
			t.Fatalf("%d %v, want 503", status, err)
		}
		a.handshake(epochA) // frees its place
		if _, _, err := w.tryDial("/ws"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHelloAckCarriesTheDeploymentsNumbers(t *testing.T) {
	simulate(t, refserver.Config{Heartbeat: 7 * time.Second, MaxInflight: 3, FirstGeneration: 1 << 62}, func(w *world) {
		ack := w.dial().handshake(epochA)
		if ack.HeartbeatIntervalMs != 7000 || ack.MaxInflight != 3 || ack.Gen != "4611686018427387904" ||
			ack.PendingInstructions == nil || len(ack.PendingInstructions) != 0 || len(ack.ChunkWatermarks) != 0 {
			t.Fatalf("%+v", ack)
		}
	})
}

func TestWhatAHelloMustNotChangeIsNoted(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		w.connect(epochA)
		c := w.dial()
		h := c.hello(expect[*wire.Challenge](c).Nonce, epochA)
		h.Supports, h.WorkspaceRoot = h.Supports[1:], "/other"
		c.send(h)
		expect[*wire.HelloAck](c) // noted, not refused
		w.violated(refserver.SupportsChanged, refserver.RootChanged)
	})
}

func TestTheLeaseBelongsToOneProcess(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		a := w.connect(epochA)
		if code := w.dial().rejected(epochB); code != wire.RejectAlreadyConnected {
			t.Fatalf("%s", code)
		}
		a.isOpen()

		// The same process takes over at once; its old socket hears why.
		b := w.connect(epochA)
		if bye := expect[*wire.Bye](a); bye.Reason != wire.ByeSuperseded || bye.Gen != a.gen {
			t.Fatalf("%+v", bye)
		}
		a.ended()
		if b.gen != "2" {
			t.Fatalf("gen %s", b.gen)
		}
		b.isOpen()

		// A closed socket gives the lease back.
		_ = b.ws.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		w.connect(epochB)
		w.violated()
	})
}

func TestAKeptLeaseRunsOutByItself(t *testing.T) {
	simulate(t, refserver.Config{KeepLease: true}, func(w *world) {
		a := w.connect(epochA)
		_ = a.ws.CloseNow()
		synctest.Wait()
		time.Sleep(44 * time.Second)
		if code := w.dial().rejected(epochB); code != wire.RejectAlreadyConnected {
			t.Fatalf("%s", code)
		}
		time.Sleep(time.Second)
		w.connect(epochB)
		w.s.Restart() // leases are in the database
		if code := w.dial().rejected(epochA); code != wire.RejectAlreadyConnected {
			t.Fatalf("%s", code)
		}
		w.connect(epochB)
	})
}

func TestTakeoverIsTheDeploymentsChoice(t *testing.T) {
	simulate(t, refserver.Config{Takeover: refserver.TakeoverAny}, func(w *world) {
		a := w.connect(epochA)
		call := w.dispatch(refserver.Dispatch{})
		expect[*wire.Instruction](a)
		w.connect(epochB)
		if bye := expect[*wire.Bye](a); bye.Reason != wire.ByeSuperseded {
			t.Fatalf("%+v", bye)
		}
		w.settledBy(call, refserver.ByNewEpoch)
	})
	simulate(t, refserver.Config{Takeover: refserver.TakeoverNever}, func(w *world) {
		w.connect(epochA)
		if code := w.dial().rejected(epochA); code != wire.RejectAlreadyConnected {
			t.Fatalf("%s", code)
		}
	})
}
