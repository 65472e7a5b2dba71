package wire

import (
	"fmt"
	"maps"
	"slices"
)

// AppendServer appends f as JSON to dst: the members the protocol names, in
// its order, and no others (§2.3). On error dst is returned as it was: a
// *SizeError above 1 MiB, else an error that wraps a *MemberError. Problem is
// not part of a frame and is ignored.
func AppendServer(dst []byte, f ServerFrame) ([]byte, error) {
	e := newEncoder(dst, MaxFrameBytes)
	switch f := f.(type) {
	case *Challenge:
		e.raw(`{"t":"challenge"`)
		e.filled(`,"nonce":`, f.Nonce)
		e.integer(`,"protocolVersion":`, f.ProtocolVersion)
	case *HelloAck:
		e.helloAck(f)
	case *HelloReject:
		e.raw(`{"t":"helloReject"`)
		e.text(`,"code":`, string(f.Code))
		if f.MinProtocolVersion != nil {
			e.integer(`,"minProtocolVersion":`, *f.MinProtocolVersion)
		}
	case *Instruction:
		e.instruction(f)
	case *Payload:
		e.payload(f)
	case *Cancel:
		e.raw(`{"t":"cancel"`)
		e.gen(f.Gen)
		e.filled(`,"instructionId":`, f.InstructionID)
	case *ResultAck:
		e.raw(`{"t":"resultAck"`)
		e.gen(f.Gen)
		e.filled(`,"instructionId":`, f.InstructionID)
	case *ChunkAck:
		e.raw(`{"t":"chunkAck"`)
		e.gen(f.Gen)
		e.filled(`,"instructionId":`, f.InstructionID)
		e.atLeast(-1, `,"upToStreamSeq":`, f.UpToStreamSeq)
	case *Bye:
		e.raw(`{"t":"bye"`)
		e.gen(f.Gen)
		e.text(`,"reason":`, string(f.Reason))
	case *Ping:
		e.raw(`{"t":"ping"`)
	case *Unknown:
		e.text(`{"t":`, f.Type)
	default:
		return dst, fmt.Errorf("encode server frame: %T is none", f)
	}
	e.raw("}")
	return e.finish(string(f.ServerType()))
}

func (e *encoder) helloAck(f *HelloAck) {
	e.raw(`{"t":"helloAck","ok":true`)
	e.atLeast(1, `,"heartbeatIntervalMs":`, f.HeartbeatIntervalMs)
	e.atLeast(1, `,"maxInflight":`, f.MaxInflight)
	e.gen(f.Gen)
	e.texts(`,"pendingInstructions":`, f.PendingInstructions)
	e.raw(`,"chunkWatermarks":{`)
	for i, id := range slices.Sorted(maps.Keys(f.ChunkWatermarks)) {
		if i > 0 {
			e.raw(",")
		}
		e.dst = appendString(e.dst, id)
		e.atLeast(-1, ":", f.ChunkWatermarks[id])
	}
	e.raw("}")
}

func (e *encoder) instruction(f *Instruction) {
	e.raw(`{"t":"instruction"`)
	e.gen(f.Gen)
	e.filled(`,"instructionId":`, f.InstructionID)
	e.text(`,"rootSessionId":`, f.RootSessionID)
	e.integer(`,"issuedSeq":`, f.IssuedSeq)
	e.filled(`,"kind":`, string(f.Kind))
	e.raw(`,"args":`)
	if scanFrame(f.Args, func(_, _ []byte) {}) != "" {
		e.fail("args", notObject)
	}
	e.dst = append(e.dst, f.Args...)
	if f.Cwd != "" {
		e.text(`,"cwd":`, f.Cwd)
	}
	if f.ShellEnv != nil {
		e.raw(`,"shellEnv":{`)
		for i, name := range slices.Sorted(maps.Keys(f.ShellEnv)) {
			if i > 0 {
				e.raw(",")
			}
			e.dst = appendString(e.dst, name)
			e.text(":", f.ShellEnv[name])
		}
		e.raw("}")
	}
	e.integer(`,"timeoutMs":`, f.TimeoutMs)
}

func (e *encoder) payload(f *Payload) {
	e.raw(`{"t":"payload"`)
	e.gen(f.Gen)
	e.filled(`,"instructionId":`, f.InstructionID)
	e.text(`,"part":`, string(f.Part))
	switch f.Part {
	case PartChunk:
		e.count(`,"offset":`, f.Offset)
		e.base64(`,"dataB64":`, f.Data)
	case PartBegin, PartCommit:
		e.count(`,"totalLen":`, f.TotalLen)
		e.text(`,"sha256":`, f.SHA256)
	default:
		e.fail("part", outsideSet)
	}
}
