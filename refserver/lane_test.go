package refserver_test

import (
	"testing"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestACommandTravelsTheWholeLane(t *testing.T) {
	simulate(t, refserver.Config{FirstGeneration: 1<<63 + 5}, func(w *world) {
		c := w.connect(epochA)
		if c.gen != "9223372036854775813" {
			t.Fatalf("gen %q", c.gen)
		}
		var got []byte
		call := w.dispatch(refserver.Dispatch{Cwd: "/tmp", ShellEnv: map[string]string{"A": "b"},
			Deliver: func(kind wire.ChunkKind, data []byte) error { got = append(got, data...); return nil }})
		in := expect[*wire.Instruction](c)
		if in.InstructionID != call.ID() || in.Gen != c.gen || in.Kind != wire.KindExec || in.Cwd != "/tmp" ||
			in.ShellEnv["A"] != "b" || in.TimeoutMs != 60_000 || in.IssuedSeq != 1 || in.RootSessionID == "" {
			t.Fatalf("instruction %+v", in)
		}
		c.stdout(call.ID(), 0, "hello ")
		if a := expect[*wire.ChunkAck](c); a.UpToStreamSeq != 0 {
			t.Fatalf("ack %+v", a)
		}
		c.stdout(call.ID(), 1, "world")
		expect[*wire.ChunkAck](c)
		c.exit(call.ID(), 2, 7)
		expect[*wire.ChunkAck](c)
		c.result(call.ID(), wire.ExecOutcome{ExitCode: 7})
		if a := expect[*wire.ResultAck](c); a.InstructionID != call.ID() || a.Gen != c.gen {
			t.Fatalf("ack %+v", a)
		}
		st := w.settledBy(call, refserver.ByResult)
		if string(got) != "hello world" || st.Outcome != (wire.ExecOutcome{ExitCode: 7}) || st.State != wire.StateTerminal ||
			st.Stream.Chunks != 3 || st.Stream.Bytes != 11 || st.Stream.Exits != 1 {
			t.Fatalf("got %q, %+v", got, st)
		}
		w.violated()
	})
}
