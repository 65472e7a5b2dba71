package wire

import "slices"

// DeviceFrameType discriminates the frames a device sends (§2.2).
type DeviceFrameType string

// The device's frames.
const (
	TypeHello         DeviceFrameType = "hello"
	TypeGenerationAck DeviceFrameType = "generationAck"
	TypeHeartbeat     DeviceFrameType = "heartbeat"
	TypeResult        DeviceFrameType = "result"
	TypeChunk         DeviceFrameType = "chunk"
	TypeGoodbye       DeviceFrameType = "goodbye"
)

// DeviceFrameTypes returns the closed set in the protocol's order.
func DeviceFrameTypes() []DeviceFrameType {
	return []DeviceFrameType{TypeHello, TypeGenerationAck, TypeHeartbeat, TypeResult, TypeChunk, TypeGoodbye}
}

// ServerFrameType discriminates the frames a server sends (§2.3).
type ServerFrameType string

// The server's frames. A ping is declared by the protocol and never sent today.
const (
	TypeChallenge   ServerFrameType = "challenge"
	TypeHelloAck    ServerFrameType = "helloAck"
	TypeHelloReject ServerFrameType = "helloReject"
	TypeInstruction ServerFrameType = "instruction"
	TypePayload     ServerFrameType = "payload"
	TypeCancel      ServerFrameType = "cancel"
	TypeResultAck   ServerFrameType = "resultAck"
	TypeChunkAck    ServerFrameType = "chunkAck"
	TypeBye         ServerFrameType = "bye"
	TypePing        ServerFrameType = "ping"
)

// ServerFrameTypes returns the closed set in the protocol's order.
func ServerFrameTypes() []ServerFrameType {
	return []ServerFrameType{TypeChallenge, TypeHelloAck, TypeHelloReject, TypeInstruction, TypePayload,
		TypeCancel, TypeResultAck, TypeChunkAck, TypeBye, TypePing}
}

// HelloRejectCode says why a server refused a hello (§1.4).
type HelloRejectCode string

// The reject codes.
const (
	RejectAuthFailed                 HelloRejectCode = "auth_failed"
	RejectRevoked                    HelloRejectCode = "revoked"
	RejectProtocolVersionUnsupported HelloRejectCode = "protocol_version_unsupported"
	RejectDraining                   HelloRejectCode = "draining"
	RejectAlreadyConnected           HelloRejectCode = "already_connected"
)

// HelloRejectCodes returns the closed set in the protocol's order.
func HelloRejectCodes() []HelloRejectCode {
	return []HelloRejectCode{RejectAuthFailed, RejectRevoked, RejectProtocolVersionUnsupported, RejectDraining, RejectAlreadyConnected}
}

// FrameRejectReason says why a server refused a frame while parsing it (§2.4, stage 1).
type FrameRejectReason string

// The parse-stage reasons.
const (
	ReasonFrameTooLarge FrameRejectReason = "frame_too_large"
	ReasonNotJSON       FrameRejectReason = "not_json"
	ReasonNotObject     FrameRejectReason = "not_object"
	ReasonUnknownType   FrameRejectReason = "unknown_type"
	ReasonBadShape      FrameRejectReason = "bad_shape"
)

// FrameRejectReasons returns the closed set in the protocol's order.
func FrameRejectReasons() []FrameRejectReason {
	return []FrameRejectReason{ReasonFrameTooLarge, ReasonNotJSON, ReasonNotObject, ReasonUnknownType, ReasonBadShape}
}

// GateRejectReason says why a server refused a well-formed frame (§2.4, stage 2).
type GateRejectReason string

// The admission-stage reasons.
const (
	GatePreHello                GateRejectReason = "pre_hello"
	GateGenerationMismatch      GateRejectReason = "generation_mismatch"
	GateUnknownInstruction      GateRejectReason = "unknown_instruction"
	GateInstructionNotCommitted GateRejectReason = "instruction_not_committed"
	GateDeviceMismatch          GateRejectReason = "device_mismatch"
)

// GateRejectReasons returns the closed set in the protocol's order.
func GateRejectReasons() []GateRejectReason {
	return []GateRejectReason{GatePreHello, GateGenerationMismatch, GateUnknownInstruction, GateInstructionNotCommitted, GateDeviceMismatch}
}

// Kind is what an instruction asks for (§3.1).
type Kind string

// The instruction kinds.
const (
	KindExec               Kind = "exec"
	KindExecStream         Kind = "execStream"
	KindReadTextFile       Kind = "readTextFile"
	KindReadTextLines      Kind = "readTextLines"
	KindReadBinaryFile     Kind = "readBinaryFile"
	KindWriteFile          Kind = "writeFile"
	KindWriteFileExclusive Kind = "writeFileExclusive"
	KindWriteFileGuarded   Kind = "writeFileGuarded"
	KindAppendFile         Kind = "appendFile"
	KindFileInfo           Kind = "fileInfo"
	KindListDir            Kind = "listDir"
	KindCanonicalPath      Kind = "canonicalPath"
	KindExists             Kind = "exists"
	KindReadLink           Kind = "readLink"
	KindCreateDir          Kind = "createDir"
	KindRemove             Kind = "remove"
	KindCreateTempDir      Kind = "createTempDir"
	KindCreateTempFile     Kind = "createTempFile"
	KindStatBatch          Kind = "statBatch"
)

// Kinds returns the closed set in the protocol's order.
func Kinds() []Kind {
	return []Kind{KindExec, KindExecStream, KindReadTextFile, KindReadTextLines, KindReadBinaryFile,
		KindWriteFile, KindWriteFileExclusive, KindWriteFileGuarded, KindAppendFile,
		KindFileInfo, KindListDir, KindCanonicalPath, KindExists, KindReadLink,
		KindCreateDir, KindRemove, KindCreateTempDir, KindCreateTempFile, KindStatBatch}
}

// Known reports whether k is in the closed set.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// TakesPayload reports whether content for k arrives in payload frames (§3.4).
func (k Kind) TakesPayload() bool {
	switch k {
	case KindWriteFile, KindWriteFileExclusive, KindWriteFileGuarded, KindAppendFile:
		return true
	}
	return false
}

// ChunkKind says what a chunk carries (§4).
type ChunkKind string

// The chunk kinds.
const (
	ChunkStdout ChunkKind = "stdout"
	ChunkStderr ChunkKind = "stderr"
	ChunkData   ChunkKind = "data"
	ChunkExit   ChunkKind = "exit"
)

// ChunkKinds returns the closed set in the protocol's order.
func ChunkKinds() []ChunkKind {
	return []ChunkKind{ChunkStdout, ChunkStderr, ChunkData, ChunkExit}
}

// ErrorCode is the machine's word in a failed outcome (§3.3).
type ErrorCode string

// The error codes. CodeTimeout is retried upstream and is said only of work
// that is known to be dead; CodeOutcomeUnknown is never retried.
const (
	CodeAborted            ErrorCode = "aborted"
	CodeAlreadyExists      ErrorCode = "already_exists"
	CodeAuthFailed         ErrorCode = "auth_failed"
	CodeCallbackError      ErrorCode = "callback_error"
	CodeInvalid            ErrorCode = "invalid"
	CodeIsDirectory        ErrorCode = "is_directory"
	CodeNotDirectory       ErrorCode = "not_directory"
	CodeNotFound           ErrorCode = "not_found"
	CodeNotSupported       ErrorCode = "not_supported"
	CodeOutcomeUnknown     ErrorCode = "outcome_unknown"
	CodePermissionDenied   ErrorCode = "permission_denied"
	CodePreconditionFailed ErrorCode = "precondition_failed"
	CodeShellUnavailable   ErrorCode = "shell_unavailable"
	CodeSpawnError         ErrorCode = "spawn_error"
	CodeSuspended          ErrorCode = "suspended"
	CodeTargetUnavailable  ErrorCode = "target_unavailable"
	CodeTimeout            ErrorCode = "timeout"
	CodeTransportLost      ErrorCode = "transport_lost"
	CodeUnknown            ErrorCode = "unknown"
)

// ErrorCodes returns the closed set in the protocol's order.
func ErrorCodes() []ErrorCode {
	return []ErrorCode{CodeAborted, CodeAlreadyExists, CodeAuthFailed, CodeCallbackError, CodeInvalid,
		CodeIsDirectory, CodeNotDirectory, CodeNotFound, CodeNotSupported, CodeOutcomeUnknown,
		CodePermissionDenied, CodePreconditionFailed, CodeShellUnavailable, CodeSpawnError, CodeSuspended,
		CodeTargetUnavailable, CodeTimeout, CodeTransportLost, CodeUnknown}
}

// InstructionState is where the server's books have an instruction (§5.1).
type InstructionState string

// The states.
const (
	StateQueued               InstructionState = "queued"
	StateDispatchCommitted    InstructionState = "dispatch_committed"
	StateTerminal             InstructionState = "terminal"
	StateTerminalNeverStarted InstructionState = "terminal_never_started"
)

// InstructionStates returns the closed set in the protocol's order.
func InstructionStates() []InstructionState {
	return []InstructionState{StateQueued, StateDispatchCommitted, StateTerminal, StateTerminalNeverStarted}
}

// ByeReason says why a server drops a connection (§5.2 R13).
type ByeReason string

// The bye reasons.
const (
	ByeRevoked    ByeReason = "revoked"
	ByeDraining   ByeReason = "draining"
	ByeSuperseded ByeReason = "superseded"
)

// ByeReasons returns the closed set in the protocol's order.
func ByeReasons() []ByeReason { return []ByeReason{ByeRevoked, ByeDraining, ByeSuperseded} }

// GoodbyeReason says why an executor leaves (§5.2 R15).
type GoodbyeReason string

// The goodbye reasons.
const (
	GoodbyeShutdown GoodbyeReason = "shutdown"
	GoodbyeSleep    GoodbyeReason = "sleep"
	GoodbyeUserStop GoodbyeReason = "user_stop"
)

// GoodbyeReasons returns the closed set in the protocol's order.
func GoodbyeReasons() []GoodbyeReason {
	return []GoodbyeReason{GoodbyeShutdown, GoodbyeSleep, GoodbyeUserStop}
}

// CancelState is what a cancel found (§5.3).
type CancelState string

// The cancel states.
const (
	CancelNotStarted CancelState = "not_started"
	CancelKilled     CancelState = "killed"
)

// CancelStates returns the closed set in the protocol's order.
func CancelStates() []CancelState { return []CancelState{CancelNotStarted, CancelKilled} }

// PayloadPart says which step of a payload a frame is (§3.4).
type PayloadPart string

// The payload parts.
const (
	PartBegin  PayloadPart = "begin"
	PartChunk  PayloadPart = "chunk"
	PartCommit PayloadPart = "commit"
)

// PayloadParts returns the closed set in the protocol's order.
func PayloadParts() []PayloadPart { return []PayloadPart{PartBegin, PartChunk, PartCommit} }
