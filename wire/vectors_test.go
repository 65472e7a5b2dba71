package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/wire"
)

// phaseLimits is the limit that each phase of a vector sets, in bytes.
var phaseLimits = map[string]int{"preAuth": 4096, "established": 1048576}

func TestBase64IsCanonicalOnly(t *testing.T) {
	type expect struct {
		Hex     hexBytes
		Refused bool
	}
	for _, c := range cases[struct{ Text string }, expect](t, "base64.json") {
		t.Run(c.Name, func(t *testing.T) {
			for _, before := range []string{"", "before"} {
				fromText, err1 := wire.DecodeBase64([]byte(before), c.Input.Text)
				fromBytes, err2 := wire.DecodeBase64([]byte(before), []byte(c.Input.Text))
				if string(fromText) != string(fromBytes) || !errors.Is(err1, err2) {
					t.Fatalf("string gives %x, %v; bytes give %x, %v", fromText, err1, fromBytes, err2)
				}
				if (err1 != nil) != c.Expect.Refused || string(fromText) != before+string(c.Expect.Hex) {
					t.Errorf("%x, %v for %q", fromText, err1, c.Input.Text)
				}
			}
		})
	}
}

func TestGenIsACanonicalDecimalString(t *testing.T) {
	for _, c := range cases[struct{ Gen string }, struct{ Canonical bool }](t, "gens.json") {
		t.Run(c.Name, func(t *testing.T) {
			g, err := wire.ParseGen(c.Input.Gen)
			if (err == nil) != c.Expect.Canonical {
				t.Errorf("%v for %q", err, c.Input.Gen)
			}
			if err == nil && string(g) != c.Input.Gen {
				t.Errorf("%q became %q", c.Input.Gen, g)
			}
			// A frame that carries it is judged alike.
			text, _ := json.Marshal(map[string]string{"t": "generationAck", "gen": c.Input.Gen})
			if _, err := wire.DecodeDevice(text, wire.MaxFrameBytes); (err == nil) != c.Expect.Canonical {
				t.Errorf("%v for %s", err, text)
			}
		})
	}
}

func TestClosedSetsAreTheProtocolsInItsOrder(t *testing.T) {
	sets := map[string][]string{
		"DEVICE_HELLO_REJECT_CODES":        texts(wire.HelloRejectCodes()),
		"DEVICE_FRAME_TYPES":               texts(wire.DeviceFrameTypes()),
		"DEVICE_SERVER_FRAME_TYPES":        texts(wire.ServerFrameTypes()),
		"DEVICE_FRAME_REJECT_REASONS":      texts(wire.FrameRejectReasons()),
		"DEVICE_FRAME_GATE_REJECT_REASONS": texts(wire.GateRejectReasons()),
		"DEVICE_INSTRUCTION_KINDS":         texts(wire.Kinds()),
		"DEVICE_OUTCOME_ERROR_CODES":       texts(wire.ErrorCodes()),
		"DEVICE_CHUNK_KINDS":               texts(wire.ChunkKinds()),
		"DEVICE_INSTRUCTION_STATES":        texts(wire.InstructionStates()),
		"DEVICE_BYE_REASONS":               texts(wire.ByeReasons()),
		"DEVICE_GOODBYE_REASONS":           texts(wire.GoodbyeReasons()),
		"DEVICE_CANCEL_STATES":             texts(wire.CancelStates()),
	}
	constants := map[string][][2]any{
		"DEVICE_CONSTANTS": {
			{"DEVICE_WS_PATH", wire.WSPath},
			{"DEVICE_PROTOCOL_VERSION", float64(wire.ProtocolVersion)},
			{"DEVICE_MIN_PROTOCOL_VERSION", float64(wire.MinProtocolVersion)},
			{"DEVICE_HELLO_DOMAIN_TAG", wire.HelloDomainTag},
		},
		"DEVICE_WS_LIMITS": {
			{"maxFrameBytes", float64(wire.MaxFrameBytes)},
			{"maxPreAuthFrameBytes", float64(wire.MaxPreAuthFrameBytes)},
			{"handshakeDeadlineMs", float64(wire.HandshakeDeadline.Milliseconds())},
			{"defaultPayloadPartBytes", float64(wire.DefaultPayloadPartBytes)},
		},
	}
	seen := 0
	for _, c := range cases[struct{ Set string }, struct{ Members json.RawMessage }](t, "closed-sets.json") {
		seen++
		if set, ok := constants[c.Input.Set]; ok {
			var want [][2]any
			if err := json.Unmarshal(c.Expect.Members, &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(set, want) {
				t.Errorf("%s is %v, want %v", c.Name, set, want)
			}
			continue
		}
		var want []string
		if err := json.Unmarshal(c.Expect.Members, &want); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sets[c.Input.Set], want) {
			t.Errorf("%s is %q, want %q", c.Name, sets[c.Input.Set], want)
		}
	}
	if all := len(sets) + len(constants); seen != all {
		t.Errorf("the vectors have %d sets and this package %d", seen, all)
	}
}

func texts[T ~string](set []T) []string {
	list := make([]string, len(set))
	for i, s := range set {
		list[i] = string(s)
	}
	return list
}

type frameInput struct{ Frame json.RawMessage }

type encodeExpect struct {
	Text    string
	Refused bool
}

// checkEncoded holds an encoder's answer to a vector's.
func checkEncoded(t *testing.T, got []byte, err error, want encodeExpect) {
	t.Helper()
	if want.Refused {
		var member *wire.MemberError
		if !errors.As(err, &member) || len(got) != 0 {
			t.Errorf("%v and %q, for what must not be sent", err, got)
		}
		return
	}
	if err != nil || string(got) != want.Text {
		t.Errorf("%v\n got %s\nwant %s", err, got, want.Text)
	}
}

func TestDeviceFramesAreEncodedByteForByte(t *testing.T) {
	for _, c := range cases[frameInput, encodeExpect](t, "device-encode.json") {
		t.Run(c.Name, func(t *testing.T) {
			got, err := wire.AppendDevice(nil, deviceForm(t, c.Input.Frame))
			checkEncoded(t, got, err, c.Expect)
		})
	}
}

func TestServerFramesAreEncodedByteForByte(t *testing.T) {
	for _, c := range cases[frameInput, encodeExpect](t, "server-encode.json") {
		t.Run(c.Name, func(t *testing.T) {
			got, err := wire.AppendServer(nil, serverForm(t, c.Input.Frame))
			checkEncoded(t, got, err, c.Expect)
		})
	}
}

func TestDeviceFramesAreJudgedAsAServerMust(t *testing.T) {
	type input struct {
		textInput
		Phase string
	}
	type expect struct {
		Frame   json.RawMessage
		Refused wire.FrameRejectReason
	}
	for _, c := range cases[input, expect](t, "device-decode.json") {
		t.Run(c.Name, func(t *testing.T) {
			text := c.Input.bytes()
			f, err := wire.DecodeDevice(text, phaseLimits[c.Input.Phase])
			if c.Expect.Frame == nil {
				var reject *wire.RejectError
				if !errors.As(err, &reject) || reject.Reason != c.Expect.Refused {
					t.Errorf("%v, want %s: %s", err, c.Expect.Refused, text)
				}
				return
			}
			if want := deviceForm(t, c.Expect.Frame); err != nil || !reflect.DeepEqual(f, want) {
				t.Errorf("%v\n got %#v\nwant %#v", err, f, want)
			}
		})
	}
}

func TestServerFramesAreReadWithTolerance(t *testing.T) {
	type expect struct {
		Frame         json.RawMessage
		Ignored       *string
		Problem       string
		InstructionID string
		Dropped       bool
	}
	for _, c := range cases[textInput, expect](t, "server-decode.json") {
		t.Run(c.Name, func(t *testing.T) {
			text := c.Input.bytes()
			f, err := wire.DecodeServer(text)
			if c.Expect.Dropped {
				var reject *wire.RejectError
				if !errors.As(err, &reject) {
					t.Errorf("%#v, %v for %s", f, err, text)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if c.Expect.Ignored != nil {
				if u, ok := f.(*wire.Unknown); !ok || u.Type != *c.Expect.Ignored {
					t.Errorf("%#v for %s", f, text)
				}
				return
			}
			if c.Expect.Problem != "" {
				var problem error
				var id string
				switch f := f.(type) {
				case *wire.Instruction:
					problem, id = f.Problem, f.InstructionID
				case *wire.Payload:
					problem, id = f.Problem, f.InstructionID
				}
				var member *wire.MemberError
				if !errors.As(problem, &member) || member.Member != c.Expect.Problem || id != c.Expect.InstructionID {
					t.Errorf("problem %v of %q, want %s: %s", problem, id, c.Expect.Problem, text)
				}
				return
			}
			want := serverForm(t, c.Expect.Frame)
			if in, ok := f.(*wire.Instruction); ok {
				in.Args = compacted(t, in.Args)
			}
			if !reflect.DeepEqual(f, want) {
				t.Errorf("\n got %#v\nwant %#v", f, want)
			}
		})
	}
}

func compacted(t *testing.T, raw json.RawMessage) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArgsAreCheckedPerKind(t *testing.T) {
	type input struct {
		Kind wire.Kind
		Text string
	}
	type expect struct {
		Args    json.RawMessage
		Invalid string
	}
	for _, c := range cases[input, expect](t, "args.json") {
		t.Run(c.Name, func(t *testing.T) {
			a, err := wire.DecodeArgs(c.Input.Kind, json.RawMessage(c.Input.Text))
			if c.Expect.Invalid != "" {
				var member *wire.MemberError
				if !errors.As(err, &member) || member.Member != c.Expect.Invalid {
					t.Errorf("%v, want %s at fault in %s", err, c.Expect.Invalid, c.Input.Text)
				}
				return
			}
			want := argsForm(t, c.Input.Kind, c.Expect.Args)
			if err != nil || !reflect.DeepEqual(a, want) {
				t.Fatalf("%v\n got %#v\nwant %#v", err, a, want)
			}
			text, err := wire.AppendArgs(nil, a)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := wire.DecodeArgs(c.Input.Kind, text); err != nil || !reflect.DeepEqual(back, want) {
				t.Errorf("encoded as %s, which is read as %#v, %v", text, back, err)
			}
		})
	}
}

func TestOutcomesAnswerTheirKinds(t *testing.T) {
	type input struct{ Outcome json.RawMessage }
	type expect struct{ Answers []wire.Kind }
	for _, c := range cases[input, expect](t, "outcomes.json") {
		t.Run(c.Name, func(t *testing.T) {
			o := outcomeForm(t, c.Input.Outcome)
			answers := slices.DeleteFunc(wire.Kinds(), func(k wire.Kind) bool { return !wire.Fits(k, o) })
			if !slices.Equal(answers, c.Expect.Answers) {
				t.Errorf("it answers %q, want %q", answers, c.Expect.Answers)
			}
		})
	}
}

func TestLimitsAndLargeTexts(t *testing.T) {
	type input struct {
		textInput
		From, Phase string
	}
	type expect struct {
		Bytes   int
		Verdict string
	}
	for _, c := range cases[input, expect](t, "limits.json") {
		t.Run(c.Name, func(t *testing.T) {
			text := c.Input.bytes()
			if len(text) != c.Expect.Bytes {
				t.Fatalf("%d bytes, not %d: the parts were misread", len(text), c.Expect.Bytes)
			}
			var err error
			switch c.Input.From {
			case "device":
				_, err = wire.DecodeDevice(text, phaseLimits[c.Input.Phase])
			case "server":
				_, err = wire.DecodeServer(text)
			default:
				t.Fatalf("from %q", c.Input.From)
			}
			verdict := "ok"
			var reject *wire.RejectError
			if errors.As(err, &reject) {
				verdict = string(reject.Reason)
			}
			if verdict != c.Expect.Verdict {
				t.Errorf("%s (%v), want %s", verdict, err, c.Expect.Verdict)
			}
			if err != nil && strings.Contains(err.Error(), "AAAA") {
				t.Errorf("the refusal repeats content: %.200s", err)
			}
		})
	}
}

func TestOnlyKnownKindsAreKnownAndOnlyWritesTakeAPayload(t *testing.T) {
	writes := []wire.Kind{"writeFile", "writeFileExclusive", "writeFileGuarded", "appendFile"}
	for _, k := range append(wire.Kinds(), "", "Exec", "teleport") {
		if known := slices.Contains(wire.Kinds(), k); k.Known() != known {
			t.Errorf("%q known: %v", k, !known)
		}
		if k.TakesPayload() != slices.Contains(writes, k) {
			t.Errorf("%q takes a payload: %v", k, k.TakesPayload())
		}
		if _, err := wire.DecodeArgs(k, json.RawMessage(`{}`)); !k.Known() && err == nil {
			t.Errorf("args of %q were decoded", k)
		}
	}
	if want := []wire.PayloadPart{"begin", "chunk", "commit"}; !slices.Equal(wire.PayloadParts(), want) {
		t.Errorf("parts %q", wire.PayloadParts())
	}
}
