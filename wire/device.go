package wire

// DeviceFrame is one of the six frames an executor sends (§2.2): *Hello,
// *GenerationAck, *Heartbeat, *Result, *Chunk or *Goodbye.
type DeviceFrame interface {
	DeviceType() DeviceFrameType
}

// Hello opens the handshake, once per socket.
type Hello struct {
	ProtocolVersion int64
	DeviceID        string
	Epoch           string
	SignatureB64    string
	Platform        Platform
	WorkspaceRoot   string
	PathFlavor      string
	Supports        []string
	Resuming        *Resuming // nil: member absent
}

// Platform describes the machine and the executor in a hello.
type Platform struct {
	OS              string
	Arch            string
	ExecutorVersion string
}

// Resuming is informational: how many results the executor still holds.
type Resuming struct {
	UnackedResults int64
}

// GenerationAck opens dispatching, once, after the fence (§1.5).
type GenerationAck struct {
	Gen Gen
}

// Heartbeat keeps a quiet connection alive and names the work in hand (R14).
type Heartbeat struct {
	Gen      Gen
	Seq      int64
	Inflight []string
}

// Result is the one terminal answer to one instruction (§3.3).
type Result struct {
	Gen           Gen
	InstructionID string
	DeviceSeq     int64
	Outcome       Outcome
}

// Chunk is one numbered piece of an instruction's output (§4). Data belongs to
// every kind but ChunkExit, ExitCode to that kind alone.
type Chunk struct {
	Gen           Gen
	InstructionID string
	StreamSeq     int64
	Kind          ChunkKind
	Data          []byte
	ExitCode      int64
}

// Goodbye announces that the executor leaves (R15). GraceMs nil means the
// member is absent and the server's reconnect grace applies.
type Goodbye struct {
	Gen     Gen
	Reason  GoodbyeReason
	GraceMs *int64
}

// DeviceType implements DeviceFrame.
func (*Hello) DeviceType() DeviceFrameType { return TypeHello }

// DeviceType implements DeviceFrame.
func (*GenerationAck) DeviceType() DeviceFrameType { return TypeGenerationAck }

// DeviceType implements DeviceFrame.
func (*Heartbeat) DeviceType() DeviceFrameType { return TypeHeartbeat }

// DeviceType implements DeviceFrame.
func (*Result) DeviceType() DeviceFrameType { return TypeResult }

// DeviceType implements DeviceFrame.
func (*Chunk) DeviceType() DeviceFrameType { return TypeChunk }

// DeviceType implements DeviceFrame.
func (*Goodbye) DeviceType() DeviceFrameType { return TypeGoodbye }
