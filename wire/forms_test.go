package wire_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
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

// form reads a form into a value of this package, without the members that are for
// the caller.
func form[V any](t *testing.T, raw json.RawMessage, others ...string) *V {
	t.Helper()
	var members map[string]json.RawMessage
	err := json.Unmarshal(raw, &members)
	for _, name := range others {
		delete(members, name)
	}
	var v V
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false) // args keep their text
	if err = errors.Join(err, e.Encode(members)); err == nil {
		err = strictly(rest.Bytes(), &v)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return &v
}

// member reads one member; it stays zero where there is none.
func member[V any](t *testing.T, raw json.RawMessage, name string) (v V) {
	t.Helper()
	var members map[string]json.RawMessage
	err := json.Unmarshal(raw, &members)
	if m, ok := members[name]; ok && err == nil {
		err = json.Unmarshal(m, &v)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func deviceForm(t *testing.T, raw json.RawMessage) wire.DeviceFrame {
	t.Helper()
	switch typ := member[string](t, raw, "t"); typ {
	case "hello":
		return form[wire.Hello](t, raw, "t")
	case "generationAck":
		return form[wire.GenerationAck](t, raw, "t")
	case "heartbeat":
		return form[wire.Heartbeat](t, raw, "t")
	case "result":
		f := form[wire.Result](t, raw, "t", "outcome")
		f.Outcome = outcomeForm(t, member[json.RawMessage](t, raw, "outcome"))
		return f
	case "chunk":
		f := form[wire.Chunk](t, raw, "t", "dataHex")
		f.Data = member[hexBytes](t, raw, "dataHex")
		return f
	case "goodbye":
		return form[wire.Goodbye](t, raw, "t")
	default:
		t.Fatalf("no device frame %q", typ)
		return nil
	}
}

func outcomeForm(t *testing.T, raw json.RawMessage) wire.Outcome {
	t.Helper()
	if !member[bool](t, raw, "ok") {
		f := form[struct {
			ErrorCode wire.ErrorCode
			Message   string
		}](t, raw, "ok")
		return wire.Failure{Code: f.ErrorCode, Message: f.Message}
	}
	switch kind := member[string](t, raw, "kind"); kind {
	case "exec":
		return *form[wire.ExecOutcome](t, raw, "ok", "kind")
	case "read":
		return *form[wire.ReadOutcome](t, raw, "ok", "kind")
	case "void":
		return *form[wire.VoidOutcome](t, raw, "ok", "kind")
	case "stat":
		o := form[wire.StatOutcome](t, raw, "ok", "kind", "linkTarget")
		if text := member[json.RawMessage](t, raw, "linkTarget"); text != nil { // null is a value of its own
			o.LinkTarget = &wire.LinkTarget{IsLink: string(text) != "null", Target: member[string](t, raw, "linkTarget")}
		}
		return *o
	case "write":
		return *form[wire.WriteOutcome](t, raw, "ok", "kind")
	case "cancelled":
		return *form[wire.CancelledOutcome](t, raw, "ok", "kind")
	default:
		t.Fatalf("no outcome %q", kind)
		return nil
	}
}

func serverForm(t *testing.T, raw json.RawMessage) wire.ServerFrame {
	t.Helper()
	switch typ := member[string](t, raw, "t"); typ {
	case "challenge":
		return form[wire.Challenge](t, raw, "t")
	case "helloAck":
		return form[wire.HelloAck](t, raw, "t", "ok")
	case "helloReject":
		return form[wire.HelloReject](t, raw, "t")
	case "instruction":
		return form[wire.Instruction](t, raw, "t")
	case "payload":
		f := form[wire.Payload](t, raw, "t", "dataHex")
		f.Data = member[hexBytes](t, raw, "dataHex")
		return f
	case "cancel":
		return form[wire.Cancel](t, raw, "t")
	case "resultAck":
		return form[wire.ResultAck](t, raw, "t")
	case "chunkAck":
		return form[wire.ChunkAck](t, raw, "t")
	case "bye":
		return form[wire.Bye](t, raw, "t")
	case "ping":
		return form[wire.Ping](t, raw, "t")
	default:
		t.Fatalf("no server frame %q", typ)
		return nil
	}
}

func argsForm(t *testing.T, kind wire.Kind, raw json.RawMessage) wire.Args {
	t.Helper()
	switch kind {
	case wire.KindExec, wire.KindExecStream:
		return *form[wire.ExecArgs](t, raw)
	case wire.KindReadTextLines:
		return *form[wire.ReadLinesArgs](t, raw)
	case wire.KindWriteFile, wire.KindWriteFileExclusive, wire.KindWriteFileGuarded, wire.KindAppendFile:
		return *form[wire.WriteArgs](t, raw)
	case wire.KindCreateDir, wire.KindRemove:
		return *form[wire.DirArgs](t, raw)
	case wire.KindCreateTempDir, wire.KindCreateTempFile:
		return *form[wire.TempArgs](t, raw)
	case wire.KindStatBatch:
		return *form[wire.StatBatchArgs](t, raw)
	default:
		return *form[wire.PathArgs](t, raw)
	}
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
