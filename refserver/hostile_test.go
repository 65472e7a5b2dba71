package refserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestAPeerThatNeverReadsIsCutOffAfterTheClose(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		deaf, _, err := websocket.Dial(w.t.Context(), "ws://refserver.invalid"+wire.WSPath, &websocket.DialOptions{HTTPClient: w.net.http()})
		if err != nil {
			w.t.Fatal(err)
		}
		defer deaf.CloseNow()
		connection := w.net.last.Conn
		time.Sleep(16 * time.Second) // the handshake's five, ten to read the challenge, one
		synctest.Wait()
		if n, err := connection.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			w.t.Fatalf("%d bytes, %v; want the end", n, err)
		}
	})
}

func TestAResultSentOverAndOverQueuesOneAck(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(patient)
		k.finish(call)
		gate := make(chan struct{})
		w.s.SetFaults(refserver.Faults{Outgoing: func(string, wire.ServerFrame) refserver.Action {
			<-gate
			return refserver.Action{}
		}})
		for range 1000 {
			k.result(call.ID(), wire.ExecOutcome{})
		}
		synctest.Wait()
		close(gate)
		expect[*wire.ResultAck](k) // in the writer's hands
		expect[*wire.ResultAck](k) // queued behind it, for all the rest
		k.silent()
		k.result(call.ID(), wire.ExecOutcome{})
		expect[*wire.ResultAck](k)
	})
}

func TestARecordKeepsLittleOfWhatADeviceChose(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		long := strings.Repeat("é", 400_000)
		k.result(long, wire.VoidOutcome{})
		k.send(&wire.Heartbeat{Gen: k.gen, Inflight: []string{long}})
		k.text(`{"t":"goodbye","reason":"sleep","gen":"` + strings.Repeat("9", 900_000) + `"}`)
		synctest.Wait()
		c := w.dial()
		h := c.hello(expect[*wire.Challenge](c).Nonce, epochA)
		h.DeviceID = strings.Repeat("d", 3000)
		c.send(h)
		c.ended()
		w.violated(refserver.UnknownIns, refserver.HeartbeatInflight, refserver.GenMismatch, refserver.HelloRejected)
		for _, v := range w.s.Audit() {
			if text := v.String(); len(text) > 400 || strings.ContainsRune(text, '\uFFFD') {
				w.t.Errorf("%d bytes: %.400s", len(text), text)
			}
		}
	})
}

func TestOneHeartbeatIsOneRecord(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		ids := make([]string, 300)
		for i := range ids {
			ids[i] = fmt.Sprint("ins_", i)
		}
		k.send(&wire.Heartbeat{Gen: k.gen, Inflight: ids})
		w.violated(refserver.HeartbeatInflight)
		if v := w.audited(refserver.HeartbeatInflight); v.InstructionID != "ins_0" || !strings.HasPrefix(v.Detail, "300 ids") {
			w.t.Errorf("%+v", v)
		}
	})
}

// A peer that stops reading in the middle of a flood of its own is ended by its silence, not kept.
func TestASilentPeerThatStoppedReadingIsCutOff(t *testing.T) {
	simulate(t, refserver.Config{Heartbeat: time.Second}, func(w *world) {
		ws, _, err := websocket.Dial(w.t.Context(), "ws://refserver.invalid"+wire.WSPath, &websocket.DialOptions{HTTPClient: w.net.http()})
		if err != nil {
			w.t.Fatal(err)
		}
		defer ws.CloseNow()
		c := &client{w: w, ws: ws, key: w.key, device: w.device}
		next := func() wire.ServerFrame {
			_, raw, err := ws.Read(context.Background())
			if err != nil {
				w.t.Fatal(err)
			}
			f, err := wire.DecodeServer(raw)
			if err != nil {
				w.t.Fatal(err)
			}
			return f
		}
		c.send(c.hello(next().(*wire.Challenge).Nonce, epochA))
		c.gen = next().(*wire.HelloAck).Gen
		c.send(&wire.GenerationAck{Gen: c.gen})
		call := w.dispatch(patient) // its frame is stuck in its write
		connection := w.net.last.Conn
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if n, err := connection.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			w.t.Fatalf("%d bytes, %v; want the end", n, err)
		}
		if call.State() != wire.StateDispatchCommitted { // R14: the work is in the reconnect grace
			w.t.Fatalf("state %s", call.State())
		}
	})
}
