package refserver_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func hexSum(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }

func TestContentFollowsItsInstructionInSlices(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		content := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // two slices and a half
		call := w.dispatch(refserver.Dispatch{Kind: wire.KindWriteFile, Args: wire.WriteArgs{Path: "/a"}, Content: content})
		in := expect[*wire.Instruction](k)
		args, err := wire.DecodeArgs(in.Kind, in.Args)
		if err != nil || args != (wire.WriteArgs{Path: "/a", ContentLen: int64(len(content)), SHA256: hexSum(content)}) {
			w.t.Fatalf("%+v %v", args, err)
		}
		if p := expect[*wire.Payload](k); p.Part != wire.PartBegin || p.TotalLen != int64(len(content)) || p.SHA256 != hexSum(content) || p.Gen != k.gen {
			w.t.Fatalf("%+v", p)
		}
		var got []byte
		for _, size := range []int{262144, 262144, 115712} {
			p := expect[*wire.Payload](k)
			if p.Part != wire.PartChunk || p.Offset != int64(len(got)) || len(p.Data) != size || p.InstructionID != call.ID() {
				w.t.Fatalf("%s at %d with %d bytes", p.Part, p.Offset, len(p.Data))
			}
			got = append(got, p.Data...)
		}
		if p := expect[*wire.Payload](k); p.Part != wire.PartCommit || p.TotalLen != int64(len(content)) || p.SHA256 != hexSum(content) {
			w.t.Fatalf("%+v", p)
		}
		if !bytes.Equal(got, content) {
			w.t.Fatal("other content")
		}
		k.result(call.ID(), wire.WriteOutcome{CanonicalPath: "/a"})
		w.settledBy(call, refserver.ByResult)
		w.violated()
	})
}

func TestEmptyContentIsBeginAndCommit(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		w.dispatch(refserver.Dispatch{Kind: wire.KindAppendFile, Args: wire.WriteArgs{Path: "/a"}})
		expect[*wire.Instruction](k)
		for _, part := range []wire.PayloadPart{wire.PartBegin, wire.PartCommit} {
			if p := expect[*wire.Payload](k); p.Part != part || p.TotalLen != 0 || p.SHA256 != hexSum(nil) {
				w.t.Fatalf("%+v", p)
			}
		}
		k.silent()
	})
}

func TestSlicesOfTwoWritesTakeTurnsAndControlGoesFirst(t *testing.T) {
	simulate(t, refserver.Config{PayloadPart: 1}, func(w *world) {
		// The first slice waits until everything else is queued behind it.
		gate := make(chan struct{})
		w.s.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			if _, first := f.(*wire.Instruction); first {
				<-gate
			}
			return refserver.Action{}
		}})
		k := w.connect(epochA)
		what := refserver.Dispatch{Kind: wire.KindWriteFile, Args: wire.WriteArgs{Path: "/a"}, Content: []byte("ab")}
		a, b := w.dispatch(what), w.dispatch(what)
		a.Cancel()
		close(gate)
		var order strings.Builder
		for range 11 {
			switch f := (<-k.frames).(type) {
			case *wire.Instruction:
				order.WriteByte('i')
			case *wire.Cancel:
				order.WriteByte('c')
			case *wire.Payload:
				order.WriteByte(map[string]byte{a.ID(): 'A', b.ID(): 'B'}[f.InstructionID])
			}
		}
		if got := order.String(); got != "iicABABABAB" {
			w.t.Fatalf("order %s", got)
		}
	})
}

func TestMalformedArgsCanBeSent(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		w.dispatch(refserver.Dispatch{Kind: wire.KindExec, RawArgs: json.RawMessage(`{"command":7}`)})
		if in := expect[*wire.Instruction](k); string(in.Args) != `{"command":7}` {
			w.t.Fatalf("%s", in.Args)
		}
	})
}

func TestAnInstructionThatFitsNoFrameIsRefusedToItsCaller(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k := w.connect(epochA)
		_, err := w.s.Dispatch(w.t.Context(), w.device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: strings.Repeat("x", 1<<20)}})
		var size *wire.SizeError
		if !errors.As(err, &size) {
			w.t.Fatalf("%v", err)
		}
		if _, err := w.s.Dispatch(w.t.Context(), "dev_x", refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{}}); !errors.Is(err, refserver.ErrUnknownDevice) {
			w.t.Fatalf("%v", err)
		}
		k.silent()
		k.isOpen()
	})
}
