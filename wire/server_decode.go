package wire

import (
	"bytes"
	"strings"
)

// serverMembers is to server frames what deviceMembers is to device frames.
type serverMembers struct {
	t, gen, instructionID                               []byte
	nonce, protocolVersion                              []byte
	ok, heartbeatIntervalMs, maxInflight                []byte
	pendingInstructions, chunkWatermarks                []byte
	code, minProtocolVersion                            []byte
	rootSessionID, issuedSeq, kind, args, cwd, shellEnv []byte
	timeoutMs                                           []byte
	part, offset, dataB64, totalLen, sha256             []byte
	upToStreamSeq, reason                               []byte

	unknown int // members that no server frame has
}

func (m *serverMembers) set(name, value []byte) {
	switch string(name) {
	case "t":
		m.t = value
	case "gen":
		m.gen = value
	case "instructionId":
		m.instructionID = value
	case "nonce":
		m.nonce = value
	case "protocolVersion":
		m.protocolVersion = value
	case "ok":
		m.ok = value
	case "heartbeatIntervalMs":
		m.heartbeatIntervalMs = value
	case "maxInflight":
		m.maxInflight = value
	case "pendingInstructions":
		m.pendingInstructions = value
	case "chunkWatermarks":
		m.chunkWatermarks = value
	case "code":
		m.code = value
	case "minProtocolVersion":
		m.minProtocolVersion = value
	case "rootSessionId":
		m.rootSessionID = value
	case "issuedSeq":
		m.issuedSeq = value
	case "kind":
		m.kind = value
	case "args":
		m.args = value
	case "cwd":
		m.cwd = value
	case "shellEnv":
		m.shellEnv = value
	case "timeoutMs":
		m.timeoutMs = value
	case "part":
		m.part = value
	case "offset":
		m.offset = value
	case "dataB64":
		m.dataB64 = value
	case "totalLen":
		m.totalLen = value
	case "sha256":
		m.sha256 = value
	case "upToStreamSeq":
		m.upToStreamSeq = value
	case "reason":
		m.reason = value
	default:
		m.unknown++
	}
}

// DecodeServer reads a frame as an executor should: members it does not know
// are ignored, and a type it does not know is an *Unknown and no error. What
// it uses it checks, so that no one behind it needs to: numbers are safe
// integers in their range, gen is canonical, ids and the nonce are not empty.
//
// Every error is a *RejectError. An instruction or a payload that names its
// id and generation is never an error: what else is wrong with it is its
// Problem. An instruction's rootSessionId and issuedSeq inform and no more, so
// they are left out rather than held against it. The frame shares no memory
// with b.
func DecodeServer(b []byte) (ServerFrame, error) {
	f, _, err := DecodeServerCounting(b)
	return f, err
}

// DecodeServerCounting is DecodeServer for whoever keeps count of what was
// ignored: unknown is how many members the frame had that no server frame has.
func DecodeServerCounting(b []byte) (f ServerFrame, unknown int, err error) {
	var m serverMembers
	if reason := scanFrame(b, m.set); reason != "" {
		return nil, 0, &RejectError{Reason: reason}
	}
	f, err = m.decode()
	return f, m.unknown, err
}

func (m *serverMembers) decode() (ServerFrame, error) {
	var c check
	t := ServerFrameType(c.text("t", m.t))
	if c.err != nil {
		return nil, &RejectError{Reason: ReasonUnknownType, Detail: c.err.Error()}
	}
	var f ServerFrame
	switch t {
	case TypeInstruction:
		f = m.instruction(&c)
	case TypePayload:
		f = m.payload(&c)
	case TypeChunkAck:
		f = &ChunkAck{Gen: c.gen(m.gen), InstructionID: m.id(&c), UpToStreamSeq: c.atLeast(-1, "upToStreamSeq", m.upToStreamSeq)}
	case TypeResultAck:
		f = &ResultAck{Gen: c.gen(m.gen), InstructionID: m.id(&c)}
	case TypeCancel:
		f = &Cancel{Gen: c.gen(m.gen), InstructionID: m.id(&c)}
	case TypeChallenge:
		f = &Challenge{Nonce: c.filled("nonce", m.nonce), ProtocolVersion: c.integer("protocolVersion", m.protocolVersion)}
	case TypeHelloAck:
		f = m.helloAck(&c)
	case TypeHelloReject:
		f = m.helloReject(&c)
	case TypeBye:
		f = &Bye{Gen: c.gen(m.gen), Reason: ByeReason(c.text("reason", m.reason))}
	case TypePing:
		f = &Ping{}
	default:
		return &Unknown{Type: string(t)}, nil
	}
	if c.err != nil {
		return nil, &RejectError{Reason: ReasonBadShape, Detail: string(t) + ": " + c.err.Error()}
	}
	return f, nil
}

// GenOf gives the generation that f was sent under. A helloAck opens one
// rather than being sent under it, so it has none here.
func GenOf(f ServerFrame) (Gen, bool) {
	switch f := f.(type) {
	case *Instruction:
		return f.Gen, true
	case *Payload:
		return f.Gen, true
	case *Cancel:
		return f.Gen, true
	case *ResultAck:
		return f.Gen, true
	case *ChunkAck:
		return f.Gen, true
	case *Bye:
		return f.Gen, true
	}
	return "", false
}

func (m *serverMembers) id(c *check) string { return c.filled("instructionId", m.instructionID) }

func (m *serverMembers) helloAck(c *check) *HelloAck {
	f := &HelloAck{
		HeartbeatIntervalMs: c.atLeast(1, "heartbeatIntervalMs", m.heartbeatIntervalMs),
		MaxInflight:         c.atLeast(1, "maxInflight", m.maxInflight),
		Gen:                 c.gen(m.gen),
		PendingInstructions: c.texts("pendingInstructions", m.pendingInstructions),
		ChunkWatermarks:     map[string]int64{},
	}
	c.object("chunkWatermarks", m.chunkWatermarks, func(name, value []byte) {
		f.ChunkWatermarks[validText(name)] = c.atLeast(-1, "chunkWatermarks[]", value)
	})
	if !c.boolean("ok", m.ok) {
		c.fail("ok", "not true")
	}
	return f
}

// helloReject keeps a code of any spelling: a refusal that cannot be read in
// full is a refusal still.
func (m *serverMembers) helloReject(c *check) *HelloReject {
	f := &HelloReject{Code: HelloRejectCode(c.text("code", m.code))}
	if m.minProtocolVersion != nil {
		if v, ok := integer(m.minProtocolVersion); ok {
			f.MinProtocolVersion = &v
		}
	}
	return f
}

func (m *serverMembers) instruction(c *check) *Instruction {
	f := &Instruction{Gen: c.gen(m.gen), InstructionID: m.id(c)}
	if m.rootSessionID != nil {
		f.RootSessionID, _ = text(m.rootSessionID)
	}
	if m.issuedSeq != nil {
		f.IssuedSeq, _ = integer(m.issuedSeq)
	}
	var p check
	f.Kind = Kind(p.filled("kind", m.kind))
	f.TimeoutMs = p.integer("timeoutMs", m.timeoutMs)
	if p.have("args", m.args) {
		if m.args[0] != '{' {
			p.fail("args", notObject)
		}
		f.Args = bytes.Clone(m.args)
	}
	if m.cwd != nil {
		f.Cwd = p.filled("cwd", m.cwd)
		p.exact("cwd", m.cwd)
	}
	if m.shellEnv != nil {
		f.ShellEnv = map[string]string{}
		p.object("shellEnv", m.shellEnv, func(name, value []byte) {
			variable := validText(name)
			if strings.Contains(variable, "\uFFFD") { // a name is not told apart from its replacement
				p.fail("shellEnv", notUnicode)
			}
			f.ShellEnv[variable] = p.exact("shellEnv."+variable, value)
		})
	}
	f.Problem = p.problem()
	return f
}

func (m *serverMembers) payload(c *check) *Payload {
	f := &Payload{Gen: c.gen(m.gen), InstructionID: m.id(c)}
	var p check
	f.Part = PayloadPart(p.text("part", m.part))
	switch f.Part {
	case PartChunk:
		f.Offset = p.count("offset", m.offset)
		f.Data = p.base64("dataB64", m.dataB64)
	case PartBegin, PartCommit:
		f.TotalLen = p.count("totalLen", m.totalLen)
		f.SHA256 = p.sha256("sha256", m.sha256)
	default:
		p.fail("part", outsideSet)
	}
	f.Problem = p.problem()
	return f
}
