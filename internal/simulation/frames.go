package simulation

import (
	"slices"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// conn is what a connection may carry.
type conn struct {
	gen    wire.Gen
	listed map[string]bool
	marks  map[string]int64 // watermarks that its helloAck carried
	acked  bool
	chunks map[string]int64 // next new streamSeq of each instruction
	heard  map[string]bool  // some output came
	result map[string]bool
}

// hear is refserver.Config.Trace.
func (j *judge) hear(dir refserver.Direction, f refserver.Frame, raw []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frames++
	j.note("%s #%d %s %s %s gen=%s seq=%d size=%d", dir, f.Conn, f.Type, f.InstructionID, f.Kind, f.Gen, f.Seq, f.Bytes)
	if dir == refserver.FromServer {
		j.fromServer(f, raw)
	} else {
		j.fromDevice(f, raw)
	}
}

func (j *judge) fromServer(f refserver.Frame, raw []byte) {
	switch wire.ServerFrameType(f.Type) {
	case wire.TypeChallenge:
		j.dialled[f.Conn] = j.life
		j.life.conns = append(j.life.conns, f.Conn)
	case wire.TypeHelloAck:
		decoded, err := wire.DecodeServer(raw)
		ack, ok := decoded.(*wire.HelloAck)
		if err != nil || !ok {
			j.fail("the server's helloAck cannot be read: %v", err)
			return
		}
		c := &conn{gen: ack.Gen, listed: map[string]bool{}, marks: ack.ChunkWatermarks, chunks: map[string]int64{}, heard: map[string]bool{}, result: map[string]bool{}}
		for _, id := range ack.PendingInstructions {
			c.listed[id] = true
			c.chunks[id] = ack.ChunkWatermarks[id] + 1
			j.of(id).confirm(ack.ChunkWatermarks[id])
		}
		j.conns[f.Conn] = c
		j.newest = f.Conn
		for id, a := range j.asks {
			a.forgiven = a.forgiven || !a.sent.IsZero() && a.settled == nil && !c.listed[id]
		}
	case wire.TypeInstruction:
		if c := j.conns[f.Conn]; c != nil {
			c.listed[f.InstructionID] = true
		}
		a := j.of(f.InstructionID)
		if a.sent.IsZero() {
			a.sent, a.sentOn = time.Now(), f.Conn
		}
	case wire.TypeChunkAck:
		j.of(f.InstructionID).confirm(f.Seq)
		if c := j.conns[f.Conn]; c != nil { // what it has need not be sent
			c.chunks[f.InstructionID] = max(c.chunks[f.InstructionID], f.Seq+1)
		}
	}
}

func (j *judge) fromDevice(f refserver.Frame, raw []byte) {
	if f.Refused != "" {
		j.fail("a frame that no server takes: %s, %.200q", f.Refused, raw)
		return
	}
	if f.Type == string(wire.TypeHello) {
		j.hello(f.Conn, raw)
		return
	}
	c := j.conns[f.Conn]
	if c == nil {
		j.fail("%s before the handshake of connection %d", f.Type, f.Conn)
		return
	}
	if f.Gen != c.gen {
		j.fail("%s of generation %s on connection %d, which has %s", f.Type, f.Gen, f.Conn, c.gen)
	}
	if f.InstructionID != "" && !c.listed[f.InstructionID] {
		j.fail("%s of %s, which connection %d neither listed nor sent", f.Type, f.InstructionID, f.Conn)
	}
	if !c.acked && (f.Type == string(wire.TypeChunk) || f.Type == string(wire.TypeResult)) {
		j.fail("%s before generationAck", f.Type)
	}
	a := j.asks[f.InstructionID]
	switch wire.DeviceFrameType(f.Type) {
	case wire.TypeGenerationAck:
		if c.acked {
			j.fail("a second generationAck on connection %d", f.Conn)
		}
		c.acked = true
		j.fenced(f.Conn, c)
	case wire.TypeHeartbeat:
		j.heartbeat(f, c, raw)
	case wire.TypeChunk:
		c.heard[f.InstructionID] = true
		j.chunk(f, c, a)
	case wire.TypeResult:
		c.result[f.InstructionID] = true
		j.result(f, a, raw)
	}
}

// reorderEntries is how many chunks, and reorderBytes how much, a server holds while
// one before them is missing (R8).
const (
	reorderEntries = 64
	reorderBytes   = 2 << 20
)

func (j *judge) chunk(f refserver.Frame, c *conn, a *asked) {
	next := c.chunks[a.id]
	if f.Seq > next {
		j.fail("%s: chunk %d on connection %d, where %d is next", a.id, f.Seq, f.Conn, next)
	}
	if mark, ok := c.marks[a.id]; ok && f.Seq <= mark {
		j.fail("%s: chunk %d again on connection %d, whose watermark is %d", a.id, f.Seq, f.Conn, mark)
	}
	if f.Seq >= next && c.result[a.id] {
		j.fail("%s: chunk %d after the result", a.id, f.Seq)
	}
	c.chunks[a.id] = max(next, f.Seq+1)
	most := int64(j.bounds.chunks)
	if f.Kind == string(wire.ChunkExit) {
		most++
	}
	if f.Seq-a.acked >= min(most, reorderEntries) {
		j.fail("%s: chunk %d, where only those below %d are acknowledged", a.id, f.Seq, a.acked)
	}
	if f.Seq == int64(len(a.sizes)) {
		a.sizes = append(a.sizes, f.Bytes)
	}
	j.room()
}

// heartbeat checks that what was heard of and still runs is named (R14).
func (j *judge) heartbeat(f refserver.Frame, c *conn, raw []byte) {
	decoded, err := wire.DecodeDevice(raw, wire.MaxFrameBytes)
	beat, ok := decoded.(*wire.Heartbeat)
	if err != nil || !ok {
		j.fail("a heartbeat that cannot be read: %v", err)
		return
	}
	for id := range c.heard {
		a := j.asks[id]
		if a.proc == nil || closed(a.proc.exited) || c.result[id] || slices.Contains(beat.Inflight, id) {
			continue
		}
		if a.diesHard() && !a.proc.wantedDeadSince().IsZero() {
			continue // it has an answer, that goes out after its output
		}
		j.fail("heartbeat %d on connection %d does not name %s, which runs", beat.Seq, f.Conn, id)
	}
}
