package wire_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// The vectors write a frame down as its members, with dataHex for the bytes of
// dataB64. What is here turns that form into this package's types by means of
// encoding/json, and so shares nothing with the codecs under test.

func cases[Input, Expect any](t *testing.T, file string) []testvectors.Case[Input, Expect] {
	t.Helper()
	list, err := testvectors.Cases[Input, Expect](file)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// hexBytes is bytes written as hex.
type hexBytes []byte

func (h *hexBytes) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	d, err := hex.DecodeString(s)
	*h = d
	return err
}

// strictly reads a form and takes no member that v does not have.
func strictly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

type tag struct{ T string }

func tagOf(raw json.RawMessage) string {
	var t tag
	if err := json.Unmarshal(raw, &t); err != nil {
		return err.Error()
	}
	return t.T
}

func deviceForm(t *testing.T, raw json.RawMessage) wire.DeviceFrame {
	t.Helper()
	var err error
	var frame wire.DeviceFrame
	switch tagOf(raw) {
	case "hello":
		var f struct {
			tag
			wire.Hello
		}
		err, frame = strictly(raw, &f), &f.Hello
	case "generationAck":
		var f struct {
			tag
			wire.GenerationAck
		}
		err, frame = strictly(raw, &f), &f.GenerationAck
	case "heartbeat":
		var f struct {
			tag
			wire.Heartbeat
		}
		err, frame = strictly(raw, &f), &f.Heartbeat
	case "result":
		var f struct {
			tag
			wire.Result
			Outcome json.RawMessage
		}
		err, frame = strictly(raw, &f), &f.Result
		f.Result.Outcome = outcomeForm(t, f.Outcome)
	case "chunk":
		var f struct {
			tag
			wire.Chunk
			DataHex hexBytes
		}
		err, frame = strictly(raw, &f), &f.Chunk
		f.Chunk.Data = f.DataHex
	case "goodbye":
		var f struct {
			tag
			wire.Goodbye
		}
		err, frame = strictly(raw, &f), &f.Goodbye
	default:
		err = fmt.Errorf("no device frame %q", tagOf(raw))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return frame
}

func outcomeForm(t *testing.T, raw json.RawMessage) wire.Outcome {
	t.Helper()
	type arm struct {
		OK   bool
		Kind string
	}
	var a struct {
		OK   bool
		Kind string
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatal(err)
	}
	var err error
	var outcome wire.Outcome
	switch {
	case !a.OK:
		var o struct {
			OK        bool
			ErrorCode wire.ErrorCode
			Message   string
		}
		err = strictly(raw, &o)
		outcome = wire.Failure{Code: o.ErrorCode, Message: o.Message}
	case a.Kind == "exec":
		var o struct {
			arm
			wire.ExecOutcome
		}
		err = strictly(raw, &o)
		outcome = o.ExecOutcome
	case a.Kind == "read":
		outcome, err = wire.ReadOutcome{}, strictly(raw, &a)
	case a.Kind == "void":
		outcome, err = wire.VoidOutcome{}, strictly(raw, &a)
	case a.Kind == "stat":
		var o struct {
			arm
			wire.StatOutcome
			LinkTarget json.RawMessage
		}
		err = strictly(raw, &o)
		if o.LinkTarget != nil {
			l := &wire.LinkTarget{IsLink: string(o.LinkTarget) != "null"}
			if l.IsLink {
				err = json.Unmarshal(o.LinkTarget, &l.Target)
			}
			o.StatOutcome.LinkTarget = l
		}
		outcome = o.StatOutcome
	case a.Kind == "write":
		var o struct {
			arm
			wire.WriteOutcome
		}
		err = strictly(raw, &o)
		outcome = o.WriteOutcome
	case a.Kind == "cancelled":
		var o struct {
			arm
			wire.CancelledOutcome
		}
		err = strictly(raw, &o)
		outcome = o.CancelledOutcome
	default:
		err = fmt.Errorf("no outcome %q", a.Kind)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return outcome
}

func serverForm(t *testing.T, raw json.RawMessage) wire.ServerFrame {
	t.Helper()
	var err error
	var frame wire.ServerFrame
	switch tagOf(raw) {
	case "challenge":
		var f struct {
			tag
			wire.Challenge
		}
		err, frame = strictly(raw, &f), &f.Challenge
	case "helloAck":
		var f struct {
			tag
			OK bool
			wire.HelloAck
		}
		err, frame = strictly(raw, &f), &f.HelloAck
	case "helloReject":
		var f struct {
			tag
			wire.HelloReject
		}
		err, frame = strictly(raw, &f), &f.HelloReject
	case "instruction":
		var f struct {
			tag
			wire.Instruction
		}
		err, frame = strictly(raw, &f), &f.Instruction
		var compact bytes.Buffer // the form's white space is not the frame's
		if err == nil {
			err = json.Compact(&compact, f.Args)
			f.Args = compact.Bytes()
		}
	case "payload":
		var f struct {
			tag
			wire.Payload
			DataHex hexBytes
		}
		err, frame = strictly(raw, &f), &f.Payload
		f.Payload.Data = f.DataHex
	case "cancel":
		var f struct {
			tag
			wire.Cancel
		}
		err, frame = strictly(raw, &f), &f.Cancel
	case "resultAck":
		var f struct {
			tag
			wire.ResultAck
		}
		err, frame = strictly(raw, &f), &f.ResultAck
	case "chunkAck":
		var f struct {
			tag
			wire.ChunkAck
		}
		err, frame = strictly(raw, &f), &f.ChunkAck
	case "bye":
		var f struct {
			tag
			wire.Bye
		}
		err, frame = strictly(raw, &f), &f.Bye
	case "ping":
		err, frame = strictly(raw, &tag{}), &wire.Ping{}
	default:
		err = fmt.Errorf("no server frame %q", tagOf(raw))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return frame
}

func argsForm(t *testing.T, kind wire.Kind, raw json.RawMessage) wire.Args {
	t.Helper()
	var err error
	var args wire.Args
	switch kind {
	case wire.KindExec, wire.KindExecStream:
		var a wire.ExecArgs
		err = strictly(raw, &a)
		args = a
	case wire.KindReadTextLines:
		var a wire.ReadLinesArgs
		err = strictly(raw, &a)
		args = a
	case wire.KindWriteFile, wire.KindWriteFileExclusive, wire.KindWriteFileGuarded, wire.KindAppendFile:
		var a wire.WriteArgs
		err = strictly(raw, &a)
		args = a
	case wire.KindCreateDir, wire.KindRemove:
		var a wire.DirArgs
		err = strictly(raw, &a)
		args = a
	case wire.KindCreateTempDir, wire.KindCreateTempFile:
		var a wire.TempArgs
		err = strictly(raw, &a)
		args = a
	case wire.KindStatBatch:
		var a wire.StatBatchArgs
		err = strictly(raw, &a)
		args = a
	default:
		var a wire.PathArgs
		err = strictly(raw, &a)
		args = a
	}
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return args
}

// textInput is a text given in one of three ways.
type textInput struct {
	Text    *string
	TextHex hexBytes
	Parts   []textPart
}

func (in textInput) bytes() []byte {
	switch {
	case in.Text != nil:
		return []byte(*in.Text)
	case in.TextHex != nil:
		return in.TextHex
	}
	var b []byte
	for _, p := range in.Parts {
		b = append(b, p...)
	}
	return b
}

// textPart is a string, or one repeated.
type textPart string

func (p *textPart) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(p))
	}
	var r struct {
		Repeat string
		Times  int
	}
	err := strictly(b, &r)
	*p = textPart(strings.Repeat(r.Repeat, r.Times))
	return err
}
