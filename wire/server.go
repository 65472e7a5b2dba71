package wire

import "encoding/json"

// ServerFrame is one of the ten frames a server sends (§2.3), or *Unknown for
// a type this executor does not know and must ignore.
type ServerFrame interface {
	ServerType() ServerFrameType
}

// Challenge is the first frame on a socket; its nonce is good for one hello.
type Challenge struct {
	Nonce           string
	ProtocolVersion int64
}

// HelloAck accepts a hello and opens a generation (§1.5).
type HelloAck struct {
	HeartbeatIntervalMs int64
	MaxInflight         int64
	Gen                 Gen
	PendingInstructions []string
	ChunkWatermarks     map[string]int64 // -1: nothing accepted yet
}

// HelloReject refuses a hello (§1.4); the socket closes after it. A code
// outside the closed set is kept as received.
type HelloReject struct {
	Code               HelloRejectCode
	MinProtocolVersion *int64
}

// Instruction is one unit of work (§3). Args stays raw until the work is owned:
// DecodeArgs turns it into the kind's own type.
//
// Problem is set when the frame named an id and a generation but some other
// member was missing or of the wrong type: such an instruction crossed the
// server's one-way commit, so it is owed the answer `invalid`.
type Instruction struct {
	Gen           Gen
	InstructionID string
	RootSessionID string
	IssuedSeq     int64
	Kind          Kind
	Args          json.RawMessage
	Cwd           string // "": absent
	ShellEnv      map[string]string
	TimeoutMs     int64
	Problem       error
}

// Payload is one step of the content of a write (§3.4). Offset and Data belong
// to PartChunk, TotalLen and SHA256 to the other two.
//
// Problem is set when the frame named an id and a generation but a member its
// part needs was missing or malformed.
type Payload struct {
	Gen           Gen
	InstructionID string
	Part          PayloadPart
	Offset        int64
	Data          []byte
	TotalLen      int64
	SHA256        string
	Problem       error
}

// Cancel asks for an instruction's end (R11).
type Cancel struct {
	Gen           Gen
	InstructionID string
}

// ResultAck says that a result need not be held any longer (§2.4).
type ResultAck struct {
	Gen           Gen
	InstructionID string
}

// ChunkAck is the cumulative watermark of one stream (§4).
type ChunkAck struct {
	Gen           Gen
	InstructionID string
	UpToStreamSeq int64
}

// Bye announces that the server drops the connection (R13). A reason outside
// the closed set is kept as received.
type Bye struct {
	Gen    Gen
	Reason ByeReason
}

// Ping is accepted and ignored (§8).
type Ping struct{}

// Unknown is a well-formed object whose type this executor does not know.
type Unknown struct {
	Type string
}

// ServerType implements ServerFrame.
func (*Challenge) ServerType() ServerFrameType { return TypeChallenge }

// ServerType implements ServerFrame.
func (*HelloAck) ServerType() ServerFrameType { return TypeHelloAck }

// ServerType implements ServerFrame.
func (*HelloReject) ServerType() ServerFrameType { return TypeHelloReject }

// ServerType implements ServerFrame.
func (*Instruction) ServerType() ServerFrameType { return TypeInstruction }

// ServerType implements ServerFrame.
func (*Payload) ServerType() ServerFrameType { return TypePayload }

// ServerType implements ServerFrame.
func (*Cancel) ServerType() ServerFrameType { return TypeCancel }

// ServerType implements ServerFrame.
func (*ResultAck) ServerType() ServerFrameType { return TypeResultAck }

// ServerType implements ServerFrame.
func (*ChunkAck) ServerType() ServerFrameType { return TypeChunkAck }

// ServerType implements ServerFrame.
func (*Bye) ServerType() ServerFrameType { return TypeBye }

// ServerType implements ServerFrame.
func (*Ping) ServerType() ServerFrameType { return TypePing }

// ServerType implements ServerFrame.
func (u *Unknown) ServerType() ServerFrameType { return ServerFrameType(u.Type) }
