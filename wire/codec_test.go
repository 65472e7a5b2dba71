package wire_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/wire"
)

func TestHelloStopsAtThePreAuthLimit(t *testing.T) {
	hello := &wire.Hello{ProtocolVersion: 1, DeviceID: "dev_1", Supports: []string{"exec"}}
	empty, err := wire.AppendDevice(nil, hello)
	if err != nil {
		t.Fatal(err)
	}
	hello.WorkspaceRoot = strings.Repeat("w", wire.MaxPreAuthFrameBytes-len(empty))
	frame, err := wire.AppendDevice(nil, hello)
	if err != nil || len(frame) != wire.MaxPreAuthFrameBytes {
		t.Fatalf("%d bytes, %v; want exactly %d", len(frame), err, wire.MaxPreAuthFrameBytes)
	}
	if _, err := wire.DecodeDevice(frame, wire.MaxPreAuthFrameBytes); err != nil {
		t.Error(err)
	}
	hello.WorkspaceRoot += "w"
	_, err = wire.AppendDevice(nil, hello)
	var size *wire.SizeError
	if !errors.As(err, &size) || *size != (wire.SizeError{Frame: "hello", Size: 4097, Limit: 4096}) {
		t.Errorf("%v for one byte too many", err)
	}
}

func TestAListingTooLargeForAFrameIsNoFrame(t *testing.T) {
	entries := make([]wire.FileInfo, 200000)
	for i := range entries {
		entries[i] = wire.FileInfo{Path: fmt.Sprintf("/folder/file-%06d", i), Kind: wire.FileFile}
	}
	result := &wire.Result{Gen: "7", InstructionID: "ins_1", Outcome: wire.StatOutcome{Entries: entries}}
	dst := []byte("kept")
	got, err := wire.AppendDevice(dst, result)
	var size *wire.SizeError
	if !errors.As(err, &size) || size.Frame != "result" || size.Size <= wire.MaxFrameBytes || size.Limit != wire.MaxFrameBytes {
		t.Fatalf("%v", err)
	}
	if string(got) != "kept" {
		t.Errorf("dst holds %d bytes after the error", len(got))
	}
	if size.Size > 2*wire.MaxFrameBytes {
		t.Errorf("encoding went on to %d bytes", size.Size)
	}
	result.Outcome = wire.StatOutcome{Entries: entries[:5000]}
	frame, err := wire.AppendDevice(nil, result)
	if err != nil {
		t.Fatal(err)
	}
	back, err := wire.DecodeDevice(frame, wire.MaxFrameBytes)
	if err != nil || !reflect.DeepEqual(back, result) {
		t.Errorf("a listing that fits came back otherwise: %v", err)
	}
}

func TestEveryRefusalToEncodeLeavesTheBufferAsItWas(t *testing.T) {
	big := strings.Repeat("x", wire.MaxFrameBytes)
	for _, f := range []wire.DeviceFrame{
		nil,
		&wire.GenerationAck{},
		&wire.Heartbeat{Gen: "7", Inflight: []string{big}},
		&wire.Result{Gen: "7", InstructionID: "i"},
		&wire.Result{Gen: "7", InstructionID: "i", Outcome: wire.VoidOutcome{}, DeviceSeq: -1},
		&wire.Chunk{Gen: "7", InstructionID: big, Kind: wire.ChunkExit},
		&wire.Goodbye{Gen: "7"},
	} {
		if got, err := wire.AppendDevice([]byte("kept"), f); err == nil || string(got) != "kept" {
			t.Errorf("%T: %v, buffer of %d bytes", f, err, len(got))
		}
	}
	for _, f := range []wire.ServerFrame{
		nil,
		&wire.Challenge{},
		&wire.Instruction{Gen: "7", InstructionID: "i", Kind: wire.KindExec},
		&wire.Payload{Gen: "7", InstructionID: "i"},
		&wire.Unknown{Type: big},
	} {
		if got, err := wire.AppendServer([]byte("kept"), f); err == nil || string(got) != "kept" {
			t.Errorf("%T: %v, buffer of %d bytes", f, err, len(got))
		}
	}
	for _, a := range []wire.Args{nil, wire.WriteArgs{ContentLen: -1}, wire.ExecArgs{Command: big}} {
		if got, err := wire.AppendArgs([]byte("kept"), a); err == nil || string(got) != "kept" {
			t.Errorf("%T: %v, buffer of %d bytes", a, err, len(got))
		}
	}
}

func TestWhatIsNotUTF8IsReplaced(t *testing.T) {
	const tail = `","kind":"stdout","dataB64":"QQ=="}`
	for _, c := range []struct{ id, want string }{
		{"a\xffb", "a\uFFFDb"},
		{"a\xed\xa0\x80b", "a\uFFFD\uFFFD\uFFFDb"},
		{`a\ud800b`, "a\uFFFDb"},
		{`a\udc00b`, "a\uFFFDb"},
		{`a\ud83d\ud83d\ude00b`, "a\uFFFD😀b"},
		{`a\ud83d\nb`, "a\uFFFD\nb"},
		{`a\ud83d`, "a\uFFFD"},
	} {
		f, err := wire.DecodeDevice([]byte(`{"t":"chunk","gen":"7","streamSeq":0,"instructionId":"`+c.id+tail), wire.MaxFrameBytes)
		if err != nil {
			t.Errorf("%q: %v", c.id, err)
		} else if got := f.(*wire.Chunk).InstructionID; got != c.want {
			t.Errorf("%q is read as %q, want %q", c.id, got, c.want)
		}
	}
	f, err := wire.DecodeServer([]byte("{\"t\":\"instruction\",\"gen\":\"7\",\"instructionId\":\"i\",\"kind\":\"exec\",\"args\":{},\"timeoutMs\":1,\"shellEnv\":{\"A\xff\":\"\xfe\"}}"))
	if err != nil {
		t.Fatal(err)
	}
	if env := f.(*wire.Instruction).ShellEnv; !reflect.DeepEqual(env, map[string]string{"A\uFFFD": "\uFFFD"}) {
		t.Errorf("shellEnv %q", env)
	}
}

func TestNilListsAreEmptyLists(t *testing.T) {
	for want, f := range map[string]wire.DeviceFrame{
		`{"t":"heartbeat","gen":"7","seq":0,"inflight":[]}`:                                    &wire.Heartbeat{Gen: "7"},
		`{"t":"chunk","gen":"7","instructionId":"i","streamSeq":0,"kind":"data","dataB64":""}`: &wire.Chunk{Gen: "7", InstructionID: "i", Kind: wire.ChunkData},
	} {
		if got, err := wire.AppendDevice(nil, f); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	const want = `{"t":"helloAck","ok":true,"heartbeatIntervalMs":1,"maxInflight":1,"gen":"7","pendingInstructions":[],"chunkWatermarks":{}}`
	if got, err := wire.AppendServer(nil, &wire.HelloAck{HeartbeatIntervalMs: 1, MaxInflight: 1, Gen: "7"}); err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestUnknownMembersAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		`{"t":"ping"}`: 0,
		`{"t":"cancel","gen":"7","instructionId":"i"}`:                      0,
		`{"t":"cancel","gen":"7","instructionId":"i","x":{"y":1},"x":[]}`:   2,
		`{"t":"later","gen":"7","x":1}`:                                     1,
		`{"t":"bye","gen":"7","Reason":"draining","reason":"draining"}`:     1,
		`{"t":"ping","why":"a known member of no frame is an unknown one"}`: 1,
	} {
		if _, unknown, err := wire.DecodeServerCounting([]byte(text)); err != nil || unknown != want {
			t.Errorf("%d unknown members (%v), want %d: %s", unknown, err, want, text)
		}
	}
}

func TestGenOfNamesTheGenerationAFrameWasSentUnder(t *testing.T) {
	for _, f := range []wire.ServerFrame{
		&wire.Instruction{Gen: "7"}, &wire.Payload{Gen: "7"}, &wire.Cancel{Gen: "7"},
		&wire.ResultAck{Gen: "7"}, &wire.ChunkAck{Gen: "7"}, &wire.Bye{Gen: "7"},
	} {
		if g, ok := wire.GenOf(f); g != "7" || !ok {
			t.Errorf("%T: %q, %v", f, g, ok)
		}
	}
	for _, f := range []wire.ServerFrame{&wire.Challenge{}, &wire.HelloAck{Gen: "7"}, &wire.HelloReject{}, &wire.Ping{}, &wire.Unknown{}} {
		if g, ok := wire.GenOf(f); ok {
			t.Errorf("%T has %q", f, g)
		}
	}
}

// A frame of the largest size may cost memory in proportion to it and no more,
// whatever it is made of.
func TestHostileTextsCostWhatTheirLengthCosts(t *testing.T) {
	fill := func(head, piece, tail string) []byte {
		return []byte(head + strings.Repeat(piece, (wire.MaxFrameBytes-len(head)-len(tail))/len(piece)) + tail)
	}
	const id = `{"t":"instruction","gen":"7","instructionId":"i","kind":"exec","timeoutMs":1,`
	for name, text := range map[string][]byte{
		"open lists":      fill(`{"t":"ping","x":`, "[", ""),
		"open objects":    fill(`{"t":"ping","x":`, `{"":`, ""),
		"many members":    fill(`{`, `"":0,`, `"t":"ping"}`),
		"escaped names":   fill(`{`, `"\n":0,`, `"t":"ping"}`),
		"many env":        fill(id+`"args":{},"shellEnv":{`, `"A":"",`, `"A":""}}`),
		"args of lists":   fill(id+`"args":{"x":[`, `[],`, `0]}}`),
		"pending of many": fill(`{"t":"helloAck","ok":true,"gen":"7","maxInflight":1,"heartbeatIntervalMs":1,"chunkWatermarks":{},"pendingInstructions":[`, `"",`, `""]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := wire.DecodeServer(text)
		runtime.ReadMemStats(&after)
		// Lists of tiny strings are the dearest: 16 bytes of header each, and what growing throws away.
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 40*wire.MaxFrameBytes {
			t.Errorf("%s: %d MiB were allocated (%v)", name, spent>>20, err)
		}
	}
}
