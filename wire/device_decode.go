package wire

import (
	"fmt"
	"slices"
)

// deviceMembers is the raw text of every member a device frame may have; nil
// for those that were absent. The last of several of one name counts.
type deviceMembers struct {
	t, gen                                                []byte
	protocolVersion, deviceID, epoch, signatureB64        []byte
	platform, workspaceRoot, pathFlavor, supports, resume []byte
	seq, inflight                                         []byte
	instructionID, deviceSeq, outcome                     []byte
	streamSeq, kind, dataB64, exitCode                    []byte
	reason, graceMs                                       []byte
}

func (m *deviceMembers) set(name, value []byte) {
	switch string(name) {
	case "t":
		m.t = value
	case "gen":
		m.gen = value
	case "protocolVersion":
		m.protocolVersion = value
	case "deviceId":
		m.deviceID = value
	case "epoch":
		m.epoch = value
	case "signatureB64":
		m.signatureB64 = value
	case "platform":
		m.platform = value
	case "workspaceRoot":
		m.workspaceRoot = value
	case "pathFlavor":
		m.pathFlavor = value
	case "supports":
		m.supports = value
	case "resuming":
		m.resume = value
	case "seq":
		m.seq = value
	case "inflight":
		m.inflight = value
	case "instructionId":
		m.instructionID = value
	case "deviceSeq":
		m.deviceSeq = value
	case "outcome":
		m.outcome = value
	case "streamSeq":
		m.streamSeq = value
	case "kind":
		m.kind = value
	case "dataB64":
		m.dataB64 = value
	case "exitCode":
		m.exitCode = value
	case "reason":
		m.reason = value
	case "graceMs":
		m.graceMs = value
	}
}

// DecodeDevice judges a frame as a server must (§2.4, stage 1); limit is the
// most bytes its phase allows. Every error is a *RejectError with the reason
// that server owes.
//
// It judges shape alone: an epoch or a signature is any string here, and which
// outcome fits which instruction is for Fits. Members it does not know are
// ignored. Where the protocol says nothing it judges as JSON.parse would: of
// members with one name the last counts, null is a value and not an absence,
// and 1.0 is the integer 1. The frame shares no memory with b.
func DecodeDevice(b []byte, limit int) (DeviceFrame, error) {
	if len(b) > limit {
		return nil, &RejectError{Reason: ReasonFrameTooLarge, Detail: fmt.Sprintf("%d bytes, at most %d are allowed", len(b), limit)}
	}
	var m deviceMembers
	if reason := scanFrame(b, m.set); reason != "" {
		return nil, &RejectError{Reason: reason}
	}
	var c check
	t := DeviceFrameType(c.text("t", m.t))
	if c.err != nil {
		return nil, &RejectError{Reason: ReasonUnknownType, Detail: c.err.Error()}
	}
	var f DeviceFrame
	switch t {
	case TypeHello:
		f = m.hello(&c)
	case TypeGenerationAck:
		f = &GenerationAck{Gen: c.gen(m.gen)}
	case TypeHeartbeat:
		f = &Heartbeat{Gen: c.gen(m.gen), Seq: c.count("seq", m.seq), Inflight: c.texts("inflight", m.inflight)}
	case TypeResult:
		f = &Result{
			Gen:           c.gen(m.gen),
			InstructionID: c.filled("instructionId", m.instructionID),
			DeviceSeq:     c.count("deviceSeq", m.deviceSeq),
			Outcome:       c.outcome(m.outcome),
		}
	case TypeChunk:
		f = m.chunk(&c)
	case TypeGoodbye:
		g := &Goodbye{
			Gen:     c.gen(m.gen),
			Reason:  GoodbyeReason(c.text("reason", m.reason)),
			GraceMs: maybe("graceMs", m.graceMs, c.count),
		}
		if !slices.Contains(GoodbyeReasons(), g.Reason) {
			c.fail("reason", outsideSet)
		}
		f = g
	default:
		return nil, &RejectError{Reason: ReasonUnknownType, Detail: "t: " + outsideSet}
	}
	if c.err != nil {
		return nil, &RejectError{Reason: ReasonBadShape, Detail: string(t) + ": " + c.err.Error()}
	}
	return f, nil
}

func (m *deviceMembers) hello(c *check) *Hello {
	var os, arch, version, unacked []byte
	c.object("platform", m.platform, func(name, value []byte) {
		switch string(name) {
		case "os":
			os = value
		case "arch":
			arch = value
		case "executorVersion":
			version = value
		}
	})
	f := &Hello{
		ProtocolVersion: c.integer("protocolVersion", m.protocolVersion),
		DeviceID:        c.filled("deviceId", m.deviceID),
		Epoch:           c.text("epoch", m.epoch),
		SignatureB64:    c.text("signatureB64", m.signatureB64),
		Platform: Platform{
			OS:              c.text("platform.os", os),
			Arch:            c.text("platform.arch", arch),
			ExecutorVersion: c.text("platform.executorVersion", version),
		},
		WorkspaceRoot: c.text("workspaceRoot", m.workspaceRoot),
		PathFlavor:    c.text("pathFlavor", m.pathFlavor),
		Supports:      c.texts("supports", m.supports),
	}
	if m.resume != nil {
		c.object("resuming", m.resume, func(name, value []byte) {
			if string(name) == "unackedResults" {
				unacked = value
			}
		})
		f.Resuming = &Resuming{UnackedResults: c.count("resuming.unackedResults", unacked)}
	}
	return f
}

func (m *deviceMembers) chunk(c *check) *Chunk {
	f := &Chunk{
		Gen:           c.gen(m.gen),
		InstructionID: c.filled("instructionId", m.instructionID),
		StreamSeq:     c.count("streamSeq", m.streamSeq),
		Kind:          ChunkKind(c.text("kind", m.kind)),
	}
	switch f.Kind {
	case ChunkStdout, ChunkStderr, ChunkData:
		if m.exitCode != nil {
			c.fail("exitCode", "belongs to an exit chunk only")
		}
		f.Data = c.base64("dataB64", m.dataB64)
	case ChunkExit:
		if m.dataB64 != nil {
			c.fail("dataB64", "does not belong to an exit chunk")
		}
		f.ExitCode = c.integer("exitCode", m.exitCode)
	default:
		c.fail("kind", outsideSet)
	}
	return f
}
