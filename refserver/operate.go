package refserver

import (
	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// Revoke revokes a device for good: bye revoked, and its work is written off.
func (s *Server) Revoke(deviceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[deviceID]; d != nil {
		d.revoked = true
		s.dismiss(d, wire.ByeRevoked)
		s.writeOffAll(d, ByRevoked, "the device was revoked")
		s.announce()
	}
}

// Supersede says bye superseded, as when another process had taken the lease,
// and writes the device's work off.
func (s *Server) Supersede(deviceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[deviceID]; d != nil {
		s.dismiss(d, wire.ByeSuperseded)
		s.writeOffAll(d, BySuperseded, "another executor took the device over")
	}
}

// Bye says bye with any reason, also one outside the closed set, and closes the
// device's connection. Nothing is settled: its work waits for the reconnect grace.
func (s *Server) Bye(deviceID string, reason wire.ByeReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[deviceID]; d != nil {
		s.dismiss(d, reason)
	}
}

// dismiss says bye to the device's connection, if it has one, and closes it.
func (s *Server) dismiss(d *device, reason wire.ByeReason) {
	k := d.current
	if k == nil {
		return
	}
	k.send(&wire.Bye{Gen: k.gen, Reason: reason})
	k.close(websocket.StatusGoingAway)
}

// WriteOff closes the books on all that a device has in flight, behind its back: as a
// ceiling or a gap does, nothing is said and the connection goes on (§2.4).
func (s *Server) WriteOff(deviceID string, by SettledBy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[deviceID]; d != nil {
		s.writeOffAll(d, by, "the server gave it up by itself")
	}
}

// Drain is a replica that is shutting down: every connection hears bye
// draining, every hello is rejected draining, every upgrade is refused 503.
// Work in flight waits for the reconnect grace, or for Restart.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, d := range s.devices {
		s.dismiss(d, wire.ByeDraining)
	}
}

// Restart is a new replica in place of this one: all connections drop without
// a word, everything in flight is settled outcome_unknown, and memory (memo,
// watermarks, rate windows, draining) is empty. Devices, tokens, leases and
// generations stay, as a database would keep them; so does the audit.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(ByRestart)
	s.draining, s.limiterDown = false, false
	s.windows = map[rateKey]*window{}
	s.memo = newMemo(s.cfg.Memo)
}

// forget drops every connection and settles everything.
func (s *Server) forget(by SettledBy) {
	for k := range s.sockets {
		s.end(k)
		k.cancel()
	}
	for _, d := range s.devices {
		s.failQueued(d, "the server went down before the instruction was sent", nil)
		s.writeOffAll(d, by, "the server went down")
		d.grace.stop()
		d.epoch = ""
	}
	s.announce()
}
