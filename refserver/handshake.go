package refserver

import (
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// hello takes the socket's one hello; the nonce is used up by it.
func (k *socket) hello(h *wire.Hello) {
	k.phase = answeringHello
	f := k.s.faults
	switch {
	case f.NoHelloAnswer:
	case f.HelloDelay > 0:
		k.s.after(f.HelloDelay, func() { k.answer(h) })
	default:
		k.answer(h)
	}
}

// answer sends helloAck or helloReject.
func (k *socket) answer(h *wire.Hello) {
	if k.closing || k.phase != answeringHello {
		return
	}
	if code, excused := k.s.judge(k, h); code != "" {
		f := &wire.HelloReject{Code: code}
		if code == wire.RejectProtocolVersionUnsupported {
			f.MinProtocolVersion = &k.s.cfg.MinProtocolVersion
		}
		k.s.record(Violation{Reason: HelloRejected, Refused: true, Excused: excused, DeviceID: h.DeviceID,
			Conn: k.n, Type: string(wire.TypeHello), Detail: string(code)})
		k.send(f)
		k.close(websocket.StatusPolicyViolation)
		return
	}
	k.accept(h)
}

// judge decides over a hello: "" accepts it. Excused is what an honest
// executor may run into.
func (s *Server) judge(k *socket, h *wire.Hello) (code wire.HelloRejectCode, excused bool) {
	if s.faults.RejectHello != "" {
		return s.faults.RejectHello, true
	}
	if h.ProtocolVersion < s.cfg.MinProtocolVersion || h.ProtocolVersion > s.cfg.ProtocolVersion {
		return wire.RejectProtocolVersionUnsupported, h.ProtocolVersion == wire.ProtocolVersion
	}
	if s.draining {
		return wire.RejectDraining, true
	}
	d := s.devices[h.DeviceID]
	if d == nil || !validDeviceID(h.DeviceID) || !signatureHolds(h, k.nonce, d.PublicKey) {
		return wire.RejectAuthFailed, false
	}
	if d.revoked {
		return wire.RejectRevoked, true
	}
	if !s.leaseFree(d, h.Epoch) {
		return wire.RejectAlreadyConnected, true
	}
	return "", false
}

// leaseFree reports whether a process of this epoch may have the lease.
func (s *Server) leaseFree(d *device, epoch string) bool {
	now := time.Now()
	fresh := d.current != nil && now.Sub(d.current.heard) < 3*s.cfg.Heartbeat
	held := d.leaseEpoch != "" && now.Before(d.leaseUntil)
	switch s.cfg.Takeover {
	case TakeoverAny:
		return true
	case TakeoverNever:
		return d.current == nil && (!held || d.leaseEpoch == epoch)
	}
	return (!fresh && !held) || d.leaseEpoch == epoch
}

// accept gives the socket the lease and opens a generation (§1.5).
func (k *socket) accept(h *wire.Hello) {
	s := k.s
	d := s.devices[h.DeviceID]
	k.leftPreAuth()
	k.deadline.stop()
	k.device, k.epoch, k.phase = d, h.Epoch, established
	if old := d.current; old != nil {
		d.current = k // first: the old socket's end then leaves the work alone
		old.send(&wire.Bye{Gen: old.gen, Reason: wire.ByeSuperseded})
		old.close(websocket.StatusPolicyViolation)
	}
	d.current = k
	d.grace.stop()
	if d.epoch != h.Epoch {
		s.writeOffAll(d, ByNewEpoch, "the executor was restarted")
		d.epoch = h.Epoch
	}
	k.checkHello(d, h)
	d.supports, d.lastBye, d.beat = slices.Clone(h.Supports), "", nil
	d.connects++
	s.failUndeclared(d)
	d.leaseEpoch = h.Epoch
	k.gen = d.nextGen(s.cfg.FirstGeneration)
	k.renew()
	k.watchSilence()

	ack := &wire.HelloAck{HeartbeatIntervalMs: s.cfg.Heartbeat.Milliseconds(), MaxInflight: int64(s.cfg.MaxInflight),
		Gen: k.gen, PendingInstructions: idsOf(d.inflight), ChunkWatermarks: map[string]int64{}}
	for _, c := range d.inflight {
		c.conn = k.n
		c.told = c.watermark()
		ack.ChunkWatermarks[c.id] = c.told
	}
	k.send(ack)
	s.announce()
}

// checkHello notes what a hello must not change (§3.2, §8).
func (k *socket) checkHello(d *device, h *wire.Hello) {
	v := Violation{Type: string(wire.TypeHello)}
	if d.connects > 0 && !sameSet(d.supports, h.Supports) {
		v.Reason, v.Detail = SupportsChanged, "supports is not what the last connection declared"
		k.note(v)
	}
	if h.WorkspaceRoot != d.WorkspaceRoot {
		v.Reason, v.Detail = RootChanged, "workspaceRoot is not what was enrolled"
		k.note(v)
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// renew keeps the lease and the liveness fresh.
func (k *socket) renew() {
	k.heard = time.Now()
	if d := k.device; d != nil && d.current == k {
		d.leaseUntil = k.heard.Add(k.s.cfg.Lease)
	}
}

// watchSilence closes the connection after three heartbeats without a frame (R14).
func (k *socket) watchSilence() {
	limit := 3 * k.s.cfg.Heartbeat
	k.silence = k.s.after(limit-time.Since(k.heard), func() {
		if time.Since(k.heard) < limit {
			k.watchSilence()
			return
		}
		k.note(Violation{Reason: Silent, Refused: true, Excused: true, Detail: "no frame for three heartbeat intervals"})
		k.close(websocket.StatusGoingAway)
	})
}
