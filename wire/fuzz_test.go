package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// addTexts seeds a fuzzer with the texts of a file of vectors.
func addTexts(f *testing.F, file string) {
	f.Helper()
	list, err := testvectors.Cases[json.RawMessage, json.RawMessage](file)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range list {
		var in struct{ Text string }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(in.Text))
	}
}

// stage says what encoding/json, an implementation of its own, thinks of a
// text: not_json, not_object, unknown_type without a string t, or "". For texts
// deeper than it goes the second result is false.
func stage(text []byte) (reason wire.FrameRejectReason, t string, judged bool) {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 9000 {
		return "", "", false
	}
	var members map[string]json.RawMessage
	switch err := json.Unmarshal(text, &members); {
	case !json.Valid(text):
		return wire.ReasonNotJSON, "", true
	case err != nil || members == nil:
		return wire.ReasonNotObject, "", true
	}
	raw, ok := members["t"]
	if !ok || raw[0] != '"' || json.Unmarshal(raw, &t) != nil {
		return wire.ReasonUnknownType, "", true
	}
	return "", t, true
}

func reasonOf(t *testing.T, err error) wire.FrameRejectReason {
	t.Helper()
	var reject *wire.RejectError
	if err != nil && !errors.As(err, &reject) {
		t.Fatalf("%T is no RejectError", err)
	}
	if reject == nil {
		return ""
	}
	return reject.Reason
}

func FuzzDecodeDevice(f *testing.F) {
	addTexts(f, "device-decode.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		original := bytes.Clone(text)
		frame, err := wire.DecodeDevice(text, wire.MaxFrameBytes)
		got := reasonOf(t, err)
		if want, typ, judged := stage(text); judged {
			if want == "" && !slices.Contains(wire.DeviceFrameTypes(), wire.DeviceFrameType(typ)) {
				want = wire.ReasonUnknownType
			}
			if got != want && (want != "" || got != wire.ReasonBadShape) {
				t.Fatalf("%s (%v), encoding/json says %q", got, err, want)
			}
		}
		if !bytes.Equal(text, original) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			return
		}
		again, err := wire.AppendDevice(nil, frame)
		if err != nil {
			var size *wire.SizeError
			var member *wire.MemberError
			if !errors.As(err, &size) && !errors.As(err, &member) {
				t.Fatal(err)
			}
			return
		}
		for i := range text { // the frame shares no memory with the text
			text[i] = 'x'
		}
		copy2, err := wire.DecodeDevice(again, wire.MaxFrameBytes)
		if err != nil {
			t.Fatalf("sent a frame that a server refuses: %v: %s", err, again)
		}
		if r, ok := frame.(*wire.Result); ok { // a message is cut when it is sent
			if o, ok := r.Outcome.(wire.Failure); ok {
				o.Message = wire.CutMessage(o.Message)
				r.Outcome = o
			}
		}
		if !reflect.DeepEqual(frame, copy2) {
			t.Fatalf("%#v became %#v", frame, copy2)
		}
	})
}

func FuzzDecodeServer(f *testing.F) {
	addTexts(f, "server-decode.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		original := bytes.Clone(text)
		frame, err := wire.DecodeServer(text)
		got := reasonOf(t, err)
		if want, typ, judged := stage(text); judged {
			if got != want && (want != "" || got != wire.ReasonBadShape) {
				t.Fatalf("%s (%v), encoding/json says %q", got, err, want)
			}
			if u, ok := frame.(*wire.Unknown); ok && (u.Type != typ || slices.Contains(wire.ServerFrameTypes(), wire.ServerFrameType(typ))) {
				t.Fatalf("%q was ignored, it is of type %q", u.Type, typ)
			}
		}
		if !bytes.Equal(text, original) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			return
		}
		if g, ok := wire.GenOf(frame); ok {
			if _, err := wire.ParseGen(string(g)); err != nil {
				t.Fatalf("gen %q", g)
			}
		}
		switch f := frame.(type) {
		case *wire.Instruction:
			if f.InstructionID == "" || f.Problem != nil {
				return
			}
		case *wire.Payload:
			if f.InstructionID == "" || f.Problem != nil {
				return
			}
		}
		again, err := wire.AppendServer(nil, frame)
		if err != nil {
			var size *wire.SizeError
			if !errors.As(err, &size) {
				t.Fatalf("%v: %#v", err, frame)
			}
			return
		}
		for i := range text {
			text[i] = 'x'
		}
		copy2, err := wire.DecodeServer(again)
		if err != nil || !reflect.DeepEqual(frame, copy2) {
			t.Fatalf("%#v became %#v, %v", frame, copy2, err)
		}
	})
}

func FuzzDecodeArgs(f *testing.F) {
	list, err := testvectors.Cases[struct{ Kind, Text string }, json.RawMessage]("args.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range list {
		f.Add(c.Input.Kind, []byte(c.Input.Text))
	}
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		args, err := wire.DecodeArgs(wire.Kind(kind), raw)
		if err != nil {
			return
		}
		again, err := wire.AppendArgs(nil, args)
		if err != nil {
			var size *wire.SizeError
			if !errors.As(err, &size) {
				t.Fatal(err)
			}
			return
		}
		copy2, err := wire.DecodeArgs(wire.Kind(kind), again)
		if err != nil || !reflect.DeepEqual(args, copy2) {
			t.Fatalf("%#v became %#v, %v", args, copy2, err)
		}
	})
}

func FuzzDecodeBase64(f *testing.F) {
	for _, s := range []string{"", "QQ==", "QR==", "QUI=", "QUJD", "QQ==\n\n\n\n", "Q\n\n\nQQ==", "====", "QUJDQUJDQQ=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, libErr := base64.StdEncoding.DecodeString(s)
		canonical := libErr == nil && base64.StdEncoding.EncodeToString(want) == s
		for range 2 {
			got, err := wire.DecodeBase64(nil, s)
			if (err == nil) != canonical || canonical && !bytes.Equal(got, want) {
				t.Fatalf("%x, %v for %q; canonical %v", got, err, s, canonical)
			}
			// Any bytes at all come back from what is canonical for them.
			s, canonical, want = base64.StdEncoding.EncodeToString([]byte(s)), true, []byte(s)
		}
	})
}

// FuzzStrings holds both directions of a string to encoding/json.
func FuzzStrings(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x7f", `\ud83d\ude00 \ud83d \ude00 \ud83dx \ud83d\u0041`, "\u2028\ufffd\xff\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		if err := encodeJSON(&want, struct {
			T string `json:"t"`
		}{s}); err != nil {
			t.Fatal(err)
		}
		got, err := wire.AppendServer(nil, &wire.Unknown{Type: s})
		if err == nil && !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("got %s, encoding/json writes %s", got, want.Bytes())
		}
		// The same characters as the inside of a string.
		text := []byte(`{"t":"` + s + `"}`)
		var in struct{ T string }
		if bytes.ContainsAny(text[6:len(text)-2], `"`) || json.Unmarshal(text, &in) != nil {
			return
		}
		frame, err := wire.DecodeServer(text)
		if err != nil {
			if slices.Contains(wire.ServerFrameTypes(), wire.ServerFrameType(in.T)) {
				return
			}
			t.Fatalf("%v: %q", err, text)
		}
		if got := string(frame.ServerType()); got != in.T {
			t.Fatalf("%q is read as %q, by encoding/json as %q", text, got, in.T)
		}
	})
}

// FuzzIntegers holds numbers to the rule of JavaScript: a value that is a safe
// integer, whatever its spelling.
func FuzzIntegers(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.0", "1e3", "9007199254740991", "9007199254740992", "9007199254740991.4", "1e-400", "1e400", "123456789012345", "-12345678901234", "0.1e1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := []byte(`{"t":"chunkAck","gen":"7","instructionId":"i","upToStreamSeq":` + s + `}`)
		var in struct{ UpToStreamSeq json.Number }
		if json.Unmarshal(text, &in) != nil || in.UpToStreamSeq.String() != s {
			return
		}
		v, err := in.UpToStreamSeq.Float64()
		safe := err == nil && v == math.Trunc(v) && v >= -1 && v <= wire.MaxSafeInteger
		frame, err := wire.DecodeServer(text)
		if (err == nil) != safe {
			t.Fatalf("%v for %s", err, s)
		}
		if err == nil && float64(frame.(*wire.ChunkAck).UpToStreamSeq) != v {
			t.Fatalf("%s is read as %d", s, frame.(*wire.ChunkAck).UpToStreamSeq)
		}
	})
}
