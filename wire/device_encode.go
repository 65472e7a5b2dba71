package wire

import (
	"encoding/base64"
	"fmt"
	"slices"
)

// AppendDevice appends f as JSON to dst: the members the protocol names, in its
// order, and no others (§2.2). On error dst is returned as it was: a *SizeError
// for a frame above its limit (4096 bytes for a hello, 1 MiB for all others),
// else an error that wraps a *MemberError for a value a server would refuse.
func AppendDevice(dst []byte, f DeviceFrame) ([]byte, error) {
	e := newEncoder(dst, MaxFrameBytes)
	switch f := f.(type) {
	case *Chunk:
		return AppendChunk(dst, f)
	case *Hello:
		e.limit = MaxPreAuthFrameBytes
		e.hello(f)
	case *GenerationAck:
		e.raw(`{"t":"generationAck"`)
		e.gen(f.Gen)
	case *Heartbeat:
		e.raw(`{"t":"heartbeat"`)
		e.gen(f.Gen)
		e.count(`,"seq":`, f.Seq)
		e.texts(`,"inflight":`, f.Inflight)
	case *Result:
		e.raw(`{"t":"result"`)
		e.gen(f.Gen)
		e.filled(`,"instructionId":`, f.InstructionID)
		e.count(`,"deviceSeq":`, f.DeviceSeq)
		e.raw(`,"outcome":`)
		e.outcome(f.Outcome)
	case *Goodbye:
		e.raw(`{"t":"goodbye"`)
		e.gen(f.Gen)
		if !slices.Contains(GoodbyeReasons(), f.Reason) {
			e.fail("reason", outsideSet)
		}
		e.text(`,"reason":`, string(f.Reason))
		if f.GraceMs != nil {
			e.count(`,"graceMs":`, *f.GraceMs)
		}
	default:
		return dst, fmt.Errorf("encode device frame: %T is none", f)
	}
	e.raw("}")
	return e.finish(string(f.DeviceType()))
}

func (e *encoder) hello(f *Hello) {
	e.raw(`{"t":"hello"`)
	e.integer(`,"protocolVersion":`, f.ProtocolVersion)
	e.filled(`,"deviceId":`, f.DeviceID)
	e.text(`,"epoch":`, f.Epoch)
	e.text(`,"signatureB64":`, f.SignatureB64)
	e.raw(`,"platform":`)
	e.text(`{"os":`, f.Platform.OS)
	e.text(`,"arch":`, f.Platform.Arch)
	e.text(`,"executorVersion":`, f.Platform.ExecutorVersion)
	e.raw("}")
	e.text(`,"workspaceRoot":`, f.WorkspaceRoot)
	e.text(`,"pathFlavor":`, f.PathFlavor)
	e.texts(`,"supports":`, f.Supports)
	if f.Resuming != nil {
		e.raw(`,"resuming":`)
		e.count(`{"unackedResults":`, f.Resuming.UnackedResults)
		e.raw("}")
	}
}

// AppendChunk appends c as AppendDevice does. Nearly all bytes an executor
// sends pass through here, so it allocates nothing once dst has the room.
func AppendChunk(dst []byte, c *Chunk) ([]byte, error) {
	const frame = string(TypeChunk)
	// Far too much data is refused before memory is spent on it.
	if size := base64.StdEncoding.EncodedLen(len(c.Data)); size > MaxFrameBytes {
		return dst, &SizeError{Frame: frame, Size: size, Limit: MaxFrameBytes}
	}
	e := newEncoder(dst, MaxFrameBytes)
	e.raw(`{"t":"chunk"`)
	e.gen(c.Gen)
	e.filled(`,"instructionId":`, c.InstructionID)
	e.count(`,"streamSeq":`, c.StreamSeq)
	e.text(`,"kind":`, string(c.Kind))
	switch c.Kind {
	case ChunkStdout, ChunkStderr, ChunkData:
		if c.ExitCode != 0 {
			e.fail("exitCode", "belongs to an exit chunk only")
		}
		e.base64(`,"dataB64":`, c.Data)
	case ChunkExit:
		if len(c.Data) > 0 {
			e.fail("dataB64", "does not belong to an exit chunk")
		}
		e.integer(`,"exitCode":`, c.ExitCode)
	default:
		e.fail("kind", outsideSet)
	}
	e.raw("}")
	return e.finish(frame)
}
