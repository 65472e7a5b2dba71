package refserver

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Reason says what was wrong. The protocol's closed sets (§2.4) keep their
// spelling; the rest are this package's words for what the prose forbids.
type Reason string

// The parse and admission stages of §2.4.
const (
	FrameTooLarge  = Reason(wire.ReasonFrameTooLarge)
	NotJSON        = Reason(wire.ReasonNotJSON)
	NotObject      = Reason(wire.ReasonNotObject)
	UnknownType    = Reason(wire.ReasonUnknownType)
	BadShape       = Reason(wire.ReasonBadShape)
	PreHello       = Reason(wire.GatePreHello)
	GenMismatch    = Reason(wire.GateGenerationMismatch)
	UnknownIns     = Reason(wire.GateUnknownInstruction)
	NotCommitted   = Reason(wire.GateInstructionNotCommitted)
	DeviceMismatch = Reason(wire.GateDeviceMismatch)
)

// What costs the connection or the instruction.
const (
	Oversize          Reason = "message_over_transport_cap" // stage 0: close 1009
	HandshakeTooLate  Reason = "handshake_deadline"
	HelloRejected     Reason = "hello_rejected" // Detail begins with the code
	Silent            Reason = "liveness"       // R14
	ChunkGap          Reason = "chunk_gap"      // R8, by time
	ReorderOverflow   Reason = "reorder_overflow"
	StreamIncomplete  Reason = "result_before_chunks"
	ChunkKind         Reason = "chunk_kind" // not a kind this instruction's stream has
	ExitMissing       Reason = "exit_missing"
	ExitDuplicate     Reason = "exit_duplicate"
	ExitNotLast       Reason = "exit_not_last"
	ExitCodeMismatch  Reason = "exit_code_mismatch"
	OutcomeKind       Reason = "outcome_kind" // §3.1
	OutcomeMembers    Reason = "outcome_members"
	CancelUnanswered  Reason = "cancel_grace"      // R11
	TimeoutUnanswered Reason = "execution_ceiling" // R12
)

// What a server cannot punish and an executor must not do (Refused is false).
const (
	AckRepeated       Reason = "generation_ack_repeated"
	BeforeAck         Reason = "before_generation_ack" // §1.5: fence first
	HeartbeatSeq      Reason = "heartbeat_seq"
	HeartbeatInflight Reason = "heartbeat_inflight" // names ids it was never given
	Unlisted          Reason = "unlisted_instruction"
	ChunkAfterResult  Reason = "chunk_after_result"
	ChunkChanged      Reason = "chunk_bytes_changed" // R7: same streamSeq, same bytes
	SecondTerminal    Reason = "second_terminal"     // R6: another deviceSeq for one result
	OutcomeSurplus    Reason = "outcome_surplus"
	SupportsChanged   Reason = "supports_changed" // §3.2
	RootChanged       Reason = "workspace_root_changed"
)

// Why an enrollment was refused 403: known to the operator, never to the client.
const (
	TokenUnknown Reason = "token_unknown"
	TokenExpired Reason = "token_expired"
	TokenForeign Reason = "token_of_another_identity"
	TokenReused  Reason = "token_reused"
)

// Violation is one thing that was refused, or that should not have been sent.
type Violation struct {
	At       time.Time
	Reason   Reason
	Refused  bool // a server acts on it: drops the frame, the connection, or the instruction
	Excused  bool // an honest executor cannot avoid it; only in Audit
	DeviceID string
	Conn     int64  // connection number; 0: not about a connection
	Type     string // frame type, or the HTTP path
	Size     int    // bytes of the message

	InstructionID string
	Gen           wire.Gen
	Seq           int64  // streamSeq, deviceSeq or heartbeat seq
	Detail        string // in words and numbers, no content
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s frame of %d bytes on connection %d (device %s, instruction %s, gen %s, seq %d): %s",
		v.Reason, v.Type, v.Size, v.Conn, v.DeviceID, v.InstructionID, v.Gen, v.Seq, v.Detail)
}

// Violations returns, in order, what the executor did wrong.
func (s *Server) Violations() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Violation
	for _, v := range s.audit {
		if !v.Excused {
			out = append(out, v)
		}
	}
	return out
}

// Audit returns everything that was refused or noted, in order.
func (s *Server) Audit() []Violation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Violation(nil), s.audit...)
}

// maxAudit bounds the record against a flood; the first entries are the telling ones.
const maxAudit = 100_000

// maxWord is the most bytes a record keeps of a word the device chose. An id has 30, a
// generation of 64 bits 20.
const maxWord = 64

// cutWord keeps the beginning of s, in memory of its own: s may belong to a frame of 1 MiB.
func cutWord[T ~string](s T) T {
	if len(s) <= maxWord {
		return s
	}
	return T(strings.ToValidUTF8(string(s[:maxWord]), "") + "…")
}

func (s *Server) record(v Violation) {
	v.At = s.cfg.Now()
	v.DeviceID, v.InstructionID, v.Gen = cutWord(v.DeviceID), cutWord(v.InstructionID), cutWord(v.Gen)
	if len(s.audit) < maxAudit {
		s.audit = append(s.audit, v)
		s.announce()
	}
	s.cfg.Log.Warn("violation", slog.String("reason", string(v.Reason)), slog.Bool("refused", v.Refused),
		slog.String("device", v.DeviceID), slog.String("type", v.Type), slog.Int("size", v.Size),
		slog.String("instruction", v.InstructionID), slog.Int64("seq", v.Seq), slog.String("detail", v.Detail))
}
