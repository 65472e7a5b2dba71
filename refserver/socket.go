package refserver

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// phase is how far a socket's handshake is.
type phase int

const (
	awaitingHello  phase = iota
	answeringHello       // the nonce is used up
	established          // helloAck is queued
	rejected             // helloReject is queued; the end is near
)

// socket is one WebSocket connection. Everything below ctx is guarded by the
// server's mutex.
type socket struct {
	s      *Server
	ws     *websocket.Conn
	cut    *cutConn // nil unless it came through Serve
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // 1-buffered: the writer may have something

	n        int64
	phase    phase
	deadline *timer
	nonce    string
	device   *device
	gen      wire.Gen
	epoch    string
	acked    bool  // generationAck came
	issued   int64 // issuedSeq of the last instruction
	beatSeq  int64
	heard    time.Time
	silence  *timer
	leaving  *timer // after goodbye
	parting  *timer // after close
	goodbye  bool

	out       []outgoing
	acks      map[string]*wire.ChunkAck // queued in out, by instruction
	releases  map[string]bool           // likewise, its resultAcks
	payloads  []*payloadRun
	closing   bool // close once out is written; nothing more is queued
	closeCode websocket.StatusCode
}

// serveSocket upgrades and serves one connection until it ends (§1.2).
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Disabled {
		http.NotFound(w, r)
		return
	}
	k, status := s.admitSocket()
	if status != 0 {
		http.Error(w, "", status)
		return
	}
	defer s.wg.Done()
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		s.cfg.Log.Info("upgrade failed", "err", err)
		s.mu.Lock()
		s.end(k)
		s.mu.Unlock()
		return
	}
	ws.SetReadLimit(wire.MaxFrameBytes)
	k.ws = ws
	k.cut, _ = r.Context().Value(cutKey{}).(*cutConn)

	writerDone := make(chan struct{})
	s.mu.Lock()
	k.open()
	s.mu.Unlock()
	go func() {
		defer close(writerDone)
		k.writeLoop()
	}()
	k.readLoop()
	s.mu.Lock()
	s.end(k)
	s.mu.Unlock()
	k.cancel() // a write to a peer that no longer reads ends here
	<-writerDone
	_ = ws.CloseNow() // already closed in most cases
}

// admitSocket claims a place for a socket, or says with which status it is refused.
func (s *Server) admitSocket() (*socket, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.draining || s.preAuth >= s.cfg.MaxPreAuth {
		return nil, http.StatusServiceUnavailable
	}
	s.wg.Add(1)
	s.preAuth++
	s.connections++
	k := &socket{s: s, n: s.connections, wake: make(chan struct{}, 1), beatSeq: -1,
		acks: map[string]*wire.ChunkAck{}, releases: map[string]bool{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	s.sockets[k] = struct{}{}
	return k, 0
}

// open sends the challenge and starts the handshake's clock.
func (k *socket) open() {
	s := k.s
	if k.closing { // the server went down meanwhile
		k.cancel()
		return
	}
	var b [24]byte
	s.random(b[:])
	k.nonce = base64.StdEncoding.EncodeToString(b[:])
	if !s.faults.NoChallenge {
		k.send(&wire.Challenge{Nonce: k.nonce, ProtocolVersion: s.cfg.ProtocolVersion})
	}
	k.deadline = s.after(s.cfg.HandshakeDeadline, func() {
		if k.phase == awaitingHello || k.phase == answeringHello {
			k.note(Violation{Reason: HandshakeTooLate, Refused: true, Excused: true,
				Detail: "no hello that could be answered before the deadline"})
			k.close(websocket.StatusPolicyViolation)
		}
	})
}

// end takes a socket that is gone out of the books.
func (s *Server) end(k *socket) {
	if _, ok := s.sockets[k]; !ok {
		return
	}
	delete(s.sockets, k)
	k.leftPreAuth()
	if !k.closing {
		k.closing, k.closeCode = true, websocket.StatusGoingAway
	}
	k.poke()
	for _, t := range []*timer{k.deadline, k.silence, k.leaving, k.parting} {
		t.stop()
	}
	s.lost(k)
}

// leftPreAuth frees the socket's place among those without a hello, once.
func (k *socket) leftPreAuth() {
	if k.phase == awaitingHello || k.phase == answeringHello {
		k.phase = rejected
		k.s.preAuth--
	}
}

// lost takes the device's connection away: queued work never started, work in
// flight waits for the reconnect grace (R4).
func (s *Server) lost(k *socket) {
	d := k.device
	if d == nil || d.current != k {
		return
	}
	d.current = nil
	if !s.cfg.KeepLease {
		d.leaseEpoch = ""
	}
	s.failQueued(d, "the device's connection was lost before the instruction was sent", nil)
	if len(d.inflight) > 0 && !d.grace.running() {
		d.grace = s.after(s.cfg.ReconnectGrace, func() {
			s.writeOffAll(d, ByReconnectGrace, "the device did not come back within the reconnect grace")
		})
	}
	s.announce()
}

// note records a violation of this connection.
func (k *socket) note(v Violation) {
	v.Conn, v.DeviceID = k.n, k.deviceID()
	if k.closing {
		v.Excused = true // it may have crossed the end on the wire
	}
	k.s.record(v)
}

func (k *socket) deviceID() string {
	if k.device == nil {
		return ""
	}
	return k.device.ID
}

// pause waits on the connection's time; false: the connection ended.
func (k *socket) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// partingTime is how long a peer may take to read what was queued before the close, and the
// close itself.
const partingTime = 10 * time.Second

// close ends the connection politely, after what is queued is written, and a peer that does
// not read that for partingTime without a word. For the device it is over at once.
func (k *socket) close(code websocket.StatusCode) {
	if k.closing {
		return
	}
	k.leftPreAuth()
	k.closing, k.closeCode = true, code
	k.parting = k.s.after(partingTime, k.cancel)
	k.s.lost(k)
	k.poke()
}
