package refserver

import (
	"fmt"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// admit is stage 2 of §2.4, over a frame that parsed. False: the connection is
// to end.
func (k *socket) admit(f wire.DeviceFrame, size int) bool {
	m := frameOfDevice(f, size)
	v := Violation{Type: m.Type, Size: size, InstructionID: m.InstructionID, Gen: m.Gen, Seq: m.Seq, Refused: true}
	h, isHello := f.(*wire.Hello)
	switch k.phase {
	case awaitingHello:
		if k.closing {
			return true
		}
		if !isHello {
			v.Reason, v.Detail = PreHello, "before the handshake"
			k.note(v)
			k.close(websocket.StatusPolicyViolation)
			return false
		}
		k.hello(h)
		return true
	case answeringHello:
		v.Reason, v.Detail = PreHello, "while the hello is being answered"
		k.note(v)
		return true
	case rejected:
		return true
	}
	if isHello {
		v.Reason, v.Detail = PreHello, "a second hello"
		k.note(v)
		k.renew()
		return true
	}
	if m.Gen != k.gen {
		v.Reason, v.Detail = GenMismatch, "this connection's generation is "+string(k.gen)
		k.note(v)
		k.renew()
		return true
	}
	if k.device.current != k {
		v.Reason, v.Excused, v.Detail = GenMismatch, true, "the connection is no longer the device's current one"
		k.note(v)
		return true
	}
	leased := time.Now().Before(k.device.leaseUntil)
	k.renew()
	k.handle(f, v, leased)
	return true
}

// handle acts on an admitted frame; v is the record prepared for it.
func (k *socket) handle(f wire.DeviceFrame, v Violation, leased bool) {
	s := k.s
	switch f := f.(type) {
	case *wire.GenerationAck:
		k.activate(v)
	case *wire.Heartbeat:
		k.heartbeat(f, v)
	case *wire.Goodbye:
		k.farewell(f)
	case *wire.Chunk:
		k.beforeAck(v)
		if c := k.find(f.InstructionID, v, func(m settledMemo) {
			if m.byResult && f.StreamSeq >= m.next {
				v.Reason, v.Refused, v.Detail = ChunkAfterResult, false, "more output after the result was accepted"
				k.note(v)
			}
		}); c != nil {
			c.chunk(k, f, v)
		}
	case *wire.Result:
		k.beforeAck(v)
		if c := k.find(f.InstructionID, v, func(m settledMemo) {
			if m.byResult && m.deviceSeq != f.DeviceSeq {
				v.Reason, v.Refused, v.Detail = SecondTerminal, false, "a re-sent result has another deviceSeq"
				k.note(v)
			}
			k.release(f.InstructionID)
		}); c != nil {
			if !leased {
				v.Reason, v.Detail = GenMismatch, "the lease has run out"
				k.note(v)
				s.writeOff(c, ByLeaseLost, "the device's lease had run out when the result came")
				return
			}
			c.result(k, f, v)
		}
	}
}

// beforeAck notes output that did not wait for the fence.
func (k *socket) beforeAck(v Violation) {
	if !k.acked {
		v.Reason, v.Refused, v.Detail = BeforeAck, false, "before generationAck"
		k.note(v)
	}
}

// find is the part of admission that concerns an instruction: in flight, or
// remembered (then settled is called), or refused.
func (k *socket) find(id string, v Violation, settled func(settledMemo)) *Call {
	c := k.s.calls[id]
	m, remembered := k.s.memo.byID[id]
	switch {
	case c != nil && c.device != k.device, c == nil && remembered && m.deviceID != k.device.ID:
		v.Reason, v.Detail = DeviceMismatch, "the instruction belongs to another device"
	case c != nil && c.state != wire.StateDispatchCommitted:
		v.Reason, v.Detail = NotCommitted, "the instruction is "+string(c.state)
	case c != nil:
		return c
	case remembered:
		if m.conn != k.n {
			n := v
			n.Reason, n.Refused, n.Detail = Unlisted, false, "neither listed in pendingInstructions nor sent on this connection"
			k.note(n)
		}
		settled(m)
		return nil
	default:
		v.Reason, v.Detail = UnknownIns, "neither in flight nor remembered"
	}
	k.note(v)
	return nil
}

// activate is the second phase of the handshake: work may flow (R10).
func (k *socket) activate(v Violation) {
	if k.acked {
		v.Reason, v.Refused, v.Detail = AckRepeated, false, "one per connection"
		k.note(v)
		return
	}
	k.acked = true
	for _, c := range k.device.inflight {
		c.deliverCancel()
		if w := c.watermark(); w > c.told { // delivered meanwhile
			k.ack(c.id, w)
		}
	}
	k.s.pump(k.device)
	k.s.announce()
}

func (k *socket) heartbeat(f *wire.Heartbeat, v Violation) {
	if f.Seq <= k.beatSeq {
		v.Reason, v.Refused, v.Detail = HeartbeatSeq, false, "not above the last one"
		k.note(v)
	}
	k.beatSeq = f.Seq
	ids := f.Inflight
	if !k.acked { // what is being fenced off may still be in it
		ids = nil
	}
	strange := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		c := k.s.calls[id]
		m, remembered := k.s.memo.byID[id]
		return c != nil && c.device == k.device || remembered && m.deviceID == k.device.ID
	})
	if len(strange) > 0 { // one record, however long the list: a record has bounds
		v.Reason, v.Refused, v.InstructionID = HeartbeatInflight, false, strange[0]
		v.Detail = fmt.Sprintf("%d ids are no instructions of this device", len(strange))
		k.note(v)
	}
	k.device.beat = f
	k.s.announce()
}

// farewell stops dispatching; the connection closes after the grace (R15).
func (k *socket) farewell(f *wire.Goodbye) {
	s, d := k.s, k.device
	grace := s.cfg.ReconnectGrace
	if f.GraceMs != nil {
		grace = millis(*f.GraceMs)
	}
	d.lastBye, k.goodbye = f.Reason, true
	s.failQueued(d, "the device said goodbye before the instruction was sent", stragglers)
	k.leaving.stop()
	k.leaving = s.after(grace, func() { k.close(websocket.StatusNormalClosure) })
	s.announce()
}

// millis is a duration of ms milliseconds, clamped to what a timer holds.
func millis(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond) / 4 // room for a grace on top
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}
