package refserver

import (
	"fmt"
	"hash/maphash"

	"github.com/sema-agent/device-executor/wire"
)

// watermark is what a chunkAck carries.
func (c *Call) watermark() int64 {
	if c.ackLater() {
		return c.delivered - 1
	}
	return c.next - 1
}

// ackLater reports whether chunks are acknowledged when they are delivered, not
// when they arrive.
func (c *Call) ackLater() bool {
	return c.what.AckDelivered && c.what.Deliver != nil && !c.muted
}

// chunk takes one chunk of an instruction in flight (§4).
func (c *Call) chunk(k *socket, f *wire.Chunk, v Violation) {
	switch first := c.early[f.StreamSeq]; {
	case f.StreamSeq < c.next:
		if sum, kept := c.sum(f.StreamSeq); kept && sum != sumOf(f) {
			c.changed(k, v)
		}
		k.ack(c.id, c.watermark())
		return
	case first != nil: // the first copy is kept
		if sumOf(first) != sumOf(f) {
			c.changed(k, v)
		}
		k.ack(c.id, c.watermark())
		return
	case c.terminal != nil:
		v.Reason, v.Detail = NotCommitted, "new output while the result is being accepted"
		k.note(v)
		c.fault(ChunkAfterResult)
		c.s.writeOff(c, ByChunkAfter, "the device sent more output after its result")
		return
	case f.StreamSeq > c.next:
		c.holdBack(k, f, v)
		return
	}
	c.accept(k, f, v)
	for {
		f := c.early[c.next]
		if f == nil {
			break
		}
		delete(c.early, c.next)
		c.earlyBytes -= len(f.Data)
		c.accept(k, f, v)
	}
	c.gap.stop()
	c.gap = nil
	if len(c.early) > 0 {
		c.watchGap()
	}
	if !c.ackLater() {
		k.ack(c.id, c.watermark())
	}
}

func (c *Call) changed(k *socket, v Violation) {
	v.Reason, v.Refused, v.Detail = ChunkChanged, false, "a re-sent chunk is not what it was"
	k.note(v)
}

// holdBack keeps a chunk that came before its turn, within bounds.
func (c *Call) holdBack(k *socket, f *wire.Chunk, v Violation) {
	if len(c.early) >= c.s.cfg.ReorderEntries || c.earlyBytes+len(f.Data) > c.s.cfg.ReorderBytes {
		v.Reason, v.Detail = ReorderOverflow, fmt.Sprintf("%d chunks of %d bytes are waiting for number %d", len(c.early), c.earlyBytes, c.next)
		k.note(v)
		c.fault(ReorderOverflow)
		c.s.writeOff(c, ByReorder, "the device ran too far ahead of a missing chunk")
		return
	}
	c.early[f.StreamSeq] = f
	c.earlyBytes += len(f.Data)
	k.ack(c.id, c.watermark())
	if !c.gap.running() {
		c.watchGap()
	}
}

// watchGap fails the instruction if the chunk waited for does not come (R8).
func (c *Call) watchGap() {
	c.gap = c.s.after(c.s.cfg.GapTimeout, func() {
		c.s.record(Violation{Reason: ChunkGap, Refused: true, Excused: c.device.current == nil, DeviceID: c.device.ID,
			InstructionID: c.id, Seq: c.next, Detail: "the chunk did not come within the gap timeout"})
		c.fault(ChunkGap)
		c.s.writeOff(c, ByGap, "a chunk of the output never came")
	})
}

func (c *Call) fault(r Reason) {
	if c.settlement.Stream.Fault == "" {
		c.settlement.Stream.Fault = r
	}
}

// accept takes the chunk whose turn it is.
func (c *Call) accept(k *socket, f *wire.Chunk, v Violation) {
	v.Seq = f.StreamSeq
	st := &c.settlement.Stream
	c.keepSum(f)
	c.next++
	st.Chunks++
	st.Bytes += int64(len(f.Data))
	if r, detail := c.misfit(f); r != "" {
		v.Reason, v.Detail = r, detail
		k.note(v)
		c.fault(r)
	}
	if f.Kind == wire.ChunkExit {
		if st.Exits++; st.Exits == 1 {
			st.ExitCode, c.exitSeq = f.ExitCode, f.StreamSeq
		}
	}
	c.deliver(f)
}

// misfit says what is wrong with a chunk at its place in the stream.
func (c *Call) misfit(f *wire.Chunk) (Reason, string) {
	exec := c.what.Kind == wire.KindExec || c.what.Kind == wire.KindExecStream
	read := wire.Fits(c.what.Kind, wire.ReadOutcome{})
	switch {
	case !exec && !read, read && f.Kind != wire.ChunkData, exec && f.Kind == wire.ChunkData:
		return ChunkKind, fmt.Sprintf("a %s chunk in the stream of %s", f.Kind, c.what.Kind)
	case c.exitSeq >= 0 && f.Kind == wire.ChunkExit:
		return ExitDuplicate, "a second exit chunk"
	case c.exitSeq >= 0:
		return ExitNotLast, "output after the exit chunk"
	}
	return "", ""
}

// maxSums is how many of a stream's latest chunks a changed resend is noticed of.
const maxSums = 1 << 14

// keepSum remembers the chunk whose turn it is.
func (c *Call) keepSum(f *wire.Chunk) {
	if len(c.sums) < maxSums {
		c.sums = append(c.sums, 0)
	}
	c.sums[c.next%maxSums] = sumOf(f)
}

// sum is what keepSum remembered of the chunk of that number, while it is kept.
func (c *Call) sum(seq int64) (sum uint64, kept bool) {
	if c.next-seq > maxSums {
		return 0, false
	}
	return c.sums[seq%maxSums], true
}

func sumOf(f *wire.Chunk) uint64 {
	var h maphash.Hash
	h.SetSeed(sumSeed)
	_, _ = h.WriteString(string(f.Kind)) // never fails
	_ = h.WriteByte(0)
	_, _ = h.Write(f.Data)
	if f.Kind == wire.ChunkExit {
		for i := range 8 {
			_ = h.WriteByte(byte(f.ExitCode >> (8 * i)))
		}
	}
	return h.Sum64()
}
