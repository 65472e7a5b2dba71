package refserver

import "github.com/sema-agent/device-executor/wire"

// Direction says who sent a message.
type Direction string

// The directions.
const (
	FromDevice Direction = "device"
	FromServer Direction = "server"
)

// Frame describes one message without its content.
type Frame struct {
	Conn          int64 // connection number, from 1
	DeviceID      string
	Type          string // "" where the message could not be parsed
	Size          int    // bytes
	InstructionID string
	Gen           wire.Gen
	// Seq is streamSeq, deviceSeq, heartbeat seq, upToStreamSeq, issuedSeq or
	// a payload's offset; -1 where the type has no number.
	Seq int64
	// Kind is the instruction's, chunk's or outcome's kind, the payload's
	// part, or a reason or code.
	Kind string
	// Bytes is the decoded content's length of chunk and payload frames.
	Bytes int
	// Refused is why a message from the device did not parse, or "".
	Refused Reason
	Binary  bool
}

func frameOfDevice(f wire.DeviceFrame, size int) Frame {
	m := Frame{Type: string(f.DeviceType()), Size: size, Seq: -1}
	switch f := f.(type) {
	case *wire.Hello:
		m.DeviceID = f.DeviceID
	case *wire.GenerationAck:
		m.Gen = f.Gen
	case *wire.Heartbeat:
		m.Gen, m.Seq = f.Gen, f.Seq
	case *wire.Result:
		m.Gen, m.InstructionID, m.Seq, m.Kind = f.Gen, f.InstructionID, f.DeviceSeq, outcomeWord(f.Outcome)
	case *wire.Chunk:
		m.Gen, m.InstructionID, m.Seq, m.Kind, m.Bytes = f.Gen, f.InstructionID, f.StreamSeq, string(f.Kind), len(f.Data)
	case *wire.Goodbye:
		m.Gen, m.Kind = f.Gen, string(f.Reason)
	}
	return m
}

func frameOfServer(f wire.ServerFrame) Frame {
	m := Frame{Type: string(f.ServerType()), Seq: -1}
	switch f := f.(type) {
	case *wire.HelloAck:
		m.Gen = f.Gen
	case *wire.HelloReject:
		m.Kind = string(f.Code)
	case *wire.Instruction:
		m.Gen, m.InstructionID, m.Seq, m.Kind = f.Gen, f.InstructionID, f.IssuedSeq, string(f.Kind)
	case *wire.Payload:
		m.Gen, m.InstructionID, m.Kind, m.Bytes = f.Gen, f.InstructionID, string(f.Part), len(f.Data)
		if f.Part == wire.PartChunk {
			m.Seq = f.Offset
		}
	case *wire.Cancel:
		m.Gen, m.InstructionID = f.Gen, f.InstructionID
	case *wire.ResultAck:
		m.Gen, m.InstructionID = f.Gen, f.InstructionID
	case *wire.ChunkAck:
		m.Gen, m.InstructionID, m.Seq = f.Gen, f.InstructionID, f.UpToStreamSeq
	case *wire.Bye:
		m.Gen, m.Kind = f.Gen, string(f.Reason)
	}
	return m
}

// outcomeWord names an outcome in one word: its kind, or its error code.
func outcomeWord(o wire.Outcome) string {
	switch o := o.(type) {
	case wire.ExecOutcome:
		return string(wire.OutcomeExec)
	case wire.ReadOutcome:
		return string(wire.OutcomeRead)
	case wire.StatOutcome:
		return string(wire.OutcomeStat)
	case wire.WriteOutcome:
		return string(wire.OutcomeWrite)
	case wire.VoidOutcome:
		return string(wire.OutcomeVoid)
	case wire.CancelledOutcome:
		return string(o.State)
	case wire.Failure:
		return string(o.Code)
	}
	return ""
}
