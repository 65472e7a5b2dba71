package refserver

import (
	"slices"

	"github.com/sema-agent/device-executor/wire"
)

// SettledBy says what closed the books on an instruction.
type SettledBy string

// The ways to settle. All but the first three are outcome_unknown.
const (
	ByResult         SettledBy = "result"          // the device's own answer
	ByNeverStarted   SettledBy = "never_started"   // rejected before the commit
	ByQueuedCancel   SettledBy = "queued_cancel"   // cancelled before the commit
	ByBadResult      SettledBy = "bad_result"      // refused: outcome kind or stream cross-checks
	ByChunkAfter     SettledBy = "chunk_after"     // new output while the result was being accepted
	ByGap            SettledBy = "chunk_gap"       // R8
	ByReorder        SettledBy = "reorder"         // R8
	ByCancelGrace    SettledBy = "cancel_grace"    // R11
	ByCeiling        SettledBy = "ceiling"         // R12
	ByNewEpoch       SettledBy = "new_epoch"       // R3
	ByReconnectGrace SettledBy = "reconnect_grace" // R4
	ByLeaseLost      SettledBy = "lease_lost"
	ByRevoked        SettledBy = "revoked"    // R13
	BySuperseded     SettledBy = "superseded" // R13
	ByRestart        SettledBy = "restart"
	ByShutdown       SettledBy = "shutdown"
)

// Settlement is how an instruction ended for its caller.
type Settlement struct {
	Outcome   wire.Outcome
	State     wire.InstructionState // terminal, or terminal_never_started: safe to retry
	By        SettledBy
	DeviceSeq int64 // of the accepted result; -1: none
	Stream    Stream
}

// Stream is the verdict over an instruction's output.
type Stream struct {
	Chunks   int64 // accepted in order, the exit chunk included
	Bytes    int64 // decoded
	Exits    int   // exit chunks
	ExitCode int64 // of the first
	// Overflow: the consumer fell behind its bound, so the command was
	// cancelled and what followed was not delivered.
	Overflow bool
	// Fault is the first thing wrong with the stream, or "".
	Fault Reason
	// DeliverErr is what the consumer refused with.
	DeliverErr error
}

// writeOff closes the books on what cannot be known any more.
func (s *Server) writeOff(c *Call, by SettledBy, why string) {
	s.settle(c, Settlement{Outcome: wire.Failf(wire.CodeOutcomeUnknown, "%s: %s", by, why), State: wire.StateTerminal, By: by})
}

// writeOffAll does so for everything a device has in flight.
func (s *Server) writeOffAll(d *device, by SettledBy, why string) {
	for _, c := range slices.Clone(d.inflight) {
		s.writeOff(c, by, why)
	}
}

func (s *Server) neverStarted(c *Call, f wire.Failure) {
	s.settle(c, Settlement{Outcome: f, State: wire.StateTerminalNeverStarted, By: ByNeverStarted})
}

// settle moves a call from the books into the memo, once.
func (s *Server) settle(c *Call, how Settlement) {
	if c.state != wire.StateQueued && c.state != wire.StateDispatchCommitted {
		return
	}
	d := c.device
	wasCommitted := c.state == wire.StateDispatchCommitted
	c.state = how.State
	how.DeviceSeq = c.deviceSeq
	how.Stream = c.settlement.Stream
	c.settlement = how
	for _, t := range c.deadlines() {
		t.stop()
	}
	delete(s.calls, c.id)
	d.inflight = slices.DeleteFunc(d.inflight, func(q *Call) bool { return q == c })
	if how.By != ByResult {
		c.pending, c.muted = nil, true
	}
	clear(c.early)
	if wasCommitted {
		s.memo.add(c.id, settledMemo{deviceID: d.ID, conn: c.conn, byResult: how.By == ByResult, deviceSeq: c.deviceSeq, next: c.next})
		if len(d.inflight) == 0 {
			d.grace.stop()
		}
	}
	if wasCommitted && c.what.Deliver != nil {
		c.pokeDelivery() // the delivery loop closes done
	} else {
		close(c.done)
	}
	s.pump(d)
	s.announce()
}
