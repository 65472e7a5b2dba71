package link

import (
	"context"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// read takes frames from the socket until it fails, a bye ends the connection, or
// the connection is over. The socket's contexts are not used to stop it: closing
// the socket does.
func (c *connection) read() {
	count := &c.l.count
	for {
		b, err := c.socket.Read(context.Background())
		if c.over.Load() {
			return
		}
		if err != nil {
			c.end(lost(err))
			return
		}
		count.framesIn.Add(1)
		count.bytesIn.Add(int64(len(b)))
		frame, unknown, err := wire.DecodeServerCounting(b)
		if err != nil {
			if count.malformed.Add(1) == 1 { // a server that sends many would fill the log
				c.l.cfg.Log.Warn("frame from the server ignored: it cannot be read; any more are only counted", "bytes", len(b), "err", err)
			}
			continue
		}
		if gen, ok := wire.GenOf(frame); ok && gen != c.gen && !fault.On("link: other generations are heeded") {
			count.otherGen.Add(1)
			continue
		}
		if bye, ok := frame.(*wire.Bye); ok {
			c.over.Store(true) // whatever follows is void (R13)
			c.end(judgeBye(bye.Reason))
			return
		}
		if !c.open.Load() {
			// A server dispatches nothing before generationAck (R10). What came all the
			// same was not sent to this generation's executor.
			count.early.Add(1)
			continue
		}
		if _, ok := frame.(*wire.Unknown); !ok {
			count.unknownMembers.Add(int64(unknown))
		}
		c.handle(frame)
	}
}

func (c *connection) handle(frame wire.ServerFrame) {
	work, outbox := c.l.cfg.Work, c.l.cfg.Outbox
	switch f := frame.(type) {
	case *wire.Instruction:
		c.proven.Store(true)
		work.Instruct(f)
	case *wire.Payload:
		work.Payload(f)
	case *wire.Cancel:
		work.Cancel(f.InstructionID)
	case *wire.ChunkAck:
		c.proven.Store(true)
		outbox.AckChunk(f.InstructionID, f.UpToStreamSeq)
	case *wire.ResultAck:
		c.proven.Store(true)
		outbox.AckResult(f.InstructionID)
		signal(c.l.acked)
	case *wire.Ping:
		if fault.On("link: a ping ends the connection") {
			c.end(outcome{kind: retry, cause: CausePeerClosed})
		}
	case *wire.Challenge:
		c.l.count.unknown.Add(1)
		if fault.On("link: every challenge is signed") {
			if h, err := handshake.Hello(f.Nonce, c.l.cfg.Identity, 0); err == nil {
				c.control <- h
			}
		}
	default: // unknown, or of the handshake
		c.l.count.unknown.Add(1)
	}
}

func judgeBye(reason wire.ByeReason) outcome {
	if fault.On("link: a final bye is tried again") {
		return outcome{kind: retry, cause: CauseByeUnknown}
	}
	if fault.On("link: bye draining is final") && reason == wire.ByeDraining {
		return outcome{kind: final, cause: CauseDraining}
	}
	switch reason {
	case wire.ByeRevoked:
		return outcome{kind: final, cause: CauseRevoked, err: ErrRevoked}
	case wire.ByeSuperseded:
		return outcome{kind: final, cause: CauseSuperseded, err: ErrSuperseded}
	case wire.ByeDraining:
		return outcome{kind: retry, cause: CauseDraining}
	}
	return outcome{kind: retry, cause: CauseByeUnknown}
}
