package conformance

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// unanswered says why the server closed its books on an instruction without an answer
// of the executor's that it could take.
var unanswered = map[refserver.SettledBy]string{
	refserver.ByNeverStarted:   "the server never sent it",
	refserver.ByQueuedCancel:   "it was cancelled before the server sent it",
	refserver.ByBadResult:      "the result was refused, as its outcome does not fit the instruction's kind or its chunks (§3.1, §4)",
	refserver.ByChunkAfter:     "a new chunk came while its result was being accepted (§4)",
	refserver.ByGap:            "a chunk of its output never came (R8)",
	refserver.ByReorder:        "its chunks ran too far ahead of one that is missing (§4, R8)",
	refserver.ByCancelGrace:    "no result came within the cancel grace (R11)",
	refserver.ByCeiling:        "no result came within timeoutMs and the server's grace (R12)",
	refserver.ByNewEpoch:       "the executor came back with a new epoch, which gives up all work in flight (R3)",
	refserver.ByReconnectGrace: "the executor did not come back within the reconnect grace (R4)",
	refserver.ByLeaseLost:      "the executor lost its lease",
	refserver.ByRevoked:        "the device was revoked meanwhile (R13)",
	refserver.BySuperseded:     "another executor took over meanwhile (R13)",
	refserver.ByRestart:        "the server was started again meanwhile (R2)",
	refserver.ByShutdown:       "the server was shut down",
}

// tell describes how an instruction ended, without its output: with the answer as the
// wire has it, or why there is none.
func tell(a answer) string {
	if why := unanswered[a.By]; why != "" {
		return "no answer that counts: " + why
	}
	return "the answer " + outcomeJSON(a.Outcome)
}

// outcomeJSON is an outcome as a result frame has it, its beginning if it is long.
func outcomeJSON(o wire.Outcome) string {
	b, err := wire.AppendDevice(nil, &wire.Result{Gen: "1", InstructionID: "i", Outcome: o})
	_, text, ok := bytes.Cut(b, []byte(`"outcome":`))
	if err != nil || !ok {
		return fmt.Sprintf("%+v", o)
	}
	return cut(strings.TrimSuffix(string(text), "}"), 300)
}

// objections say in words what the reference server objects to.
var objections = map[refserver.Reason]string{
	refserver.FrameTooLarge:     "the frame is larger than the 4096 bytes that are allowed before the handshake is over (§1.2)",
	refserver.NotJSON:           "the message is not JSON, or is a binary one (§2)",
	refserver.NotObject:         "the message is JSON and no object (§2)",
	refserver.UnknownType:       "t is none of the types that a device sends (§2.2)",
	refserver.BadShape:          "a member is missing, of the wrong type, outside its closed set, or not in canonical form (§2.2, §2.4, §4)",
	refserver.PreHello:          "a frame that is not due at this point of the handshake, or a second hello (§2.4)",
	refserver.GenMismatch:       "gen is not that of this connection's helloAck (R9)",
	refserver.UnknownIns:        "the instructionId is none that is in flight, nor one of those that were lately settled (§2.4)",
	refserver.NotCommitted:      "the instruction does not wait for such a frame any more (§2.4)",
	refserver.DeviceMismatch:    "the instructionId is another device's (§2.4)",
	refserver.Oversize:          "a message of more than 1 MiB, which costs the connection (§2.1, §2.4)",
	refserver.HandshakeTooLate:  "no hello came that could be answered before the handshake's deadline (§1.2)",
	refserver.HelloRejected:     "the hello had to be rejected (§1.3, §1.4)",
	refserver.Silent:            "no frame came for three heartbeat intervals (R14)",
	refserver.ChunkGap:          "a streamSeq is missing, and did not come in time (R8)",
	refserver.ReorderOverflow:   "the chunks ran too far ahead of one that is missing (§4)",
	refserver.StreamIncomplete:  "the result came before all of its chunks (§4)",
	refserver.ChunkKind:         "a chunk of a kind that this instruction's stream does not have (§4)",
	refserver.ExitMissing:       "an exec outcome without an exit chunk (§4)",
	refserver.ExitDuplicate:     "more than one exit chunk (§4)",
	refserver.ExitNotLast:       "a chunk came after the exit chunk (§4)",
	refserver.ExitCodeMismatch:  "the exit chunk and the result have different exit codes (§4)",
	refserver.OutcomeKind:       "the outcome's kind is not the one that the instruction's kind has to be answered with (§3.1)",
	refserver.OutcomeMembers:    "the outcome lacks a member that the instruction asked for (§3.1, §3.3)",
	refserver.CancelUnanswered:  "no result came within the cancel grace (R11)",
	refserver.TimeoutUnanswered: "no result came within timeoutMs and the server's grace (R12)",
	refserver.AckRepeated:       "more than one generationAck on a connection (§2.2, §5.4)",
	refserver.BeforeAck:         "a frame about work before generationAck (§1.5, R10)",
	refserver.HeartbeatSeq:      "the heartbeat's seq does not increase (R14)",
	refserver.HeartbeatInflight: "the heartbeat's inflight names an instruction that is none of this device's (R14)",
	refserver.Unlisted:          "a frame for an instruction that pendingInstructions did not list (R2, §5.4)",
	refserver.ChunkAfterResult:  "a chunk came after the result (§4)",
	refserver.ChunkChanged:      "a chunk that was sent again has other bytes (R7)",
	refserver.SecondTerminal:    "a second result with another deviceSeq (R6)",
	refserver.OutcomeSurplus:    "the outcome has members that were not asked for (§3.3)",
	refserver.SupportsChanged:   "supports is not what an earlier hello had (§3.2)",
	refserver.RootChanged:       "workspaceRoot is not what was enrolled (§8)",
	refserver.TokenUnknown:      "the enrollment token is unknown (§1.1)",
	refserver.TokenExpired:      "the enrollment token has expired (§1.1)",
	refserver.TokenForeign:      "the enrollment token is another caller's (§1.1)",
	refserver.TokenReused:       "the enrollment token was used with another public key (§1.1)",
}

// objection tells what the server objects to, and to which message as far as it is
// about one.
func objection(v refserver.Violation) string {
	words := objections[v.Reason]
	if words == "" {
		words = "see §2.4"
	}
	var about []string
	add := func(told bool, format string, args ...any) {
		if told {
			about = append(about, fmt.Sprintf(format, args...))
		}
	}
	add(v.Type != "" && v.Size > 0, "%s of %d bytes", v.Type, v.Size)
	add(v.Type != "" && v.Size == 0, "%s", v.Type)
	add(v.Type == "" && v.Size > 0, "a message of %d bytes", v.Size)
	add(v.Conn > 0, "connection %d", v.Conn)
	add(v.InstructionID != "", "instruction %s", shorten(v.InstructionID))
	add(v.Gen != "", "gen %s", v.Gen)
	add(v.Type == string(wire.TypeChunk), "streamSeq %d", v.Seq)
	add(v.Type == string(wire.TypeResult), "deviceSeq %d", v.Seq)
	add(v.Type == string(wire.TypeHeartbeat), "seq %d", v.Seq)
	add(v.Detail != "" && (v.Type != "" || v.Size > 0), "%s", v.Detail) // else it says the same
	return fmt.Sprintf("the server objects, %s: %s [%s]", v.Reason, words, strings.Join(about, ", "))
}
