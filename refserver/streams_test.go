package refserver_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// The forms of streams.json.
type (
	streamInput struct {
		Kind  wire.Kind
		Steps []streamStep
	}
	streamStep struct {
		Chunk   *streamChunk
		Times   int64
		Outcome json.RawMessage
		WaitMs  int64
	}
	streamChunk struct {
		StreamSeq int64
		Kind      wire.ChunkKind
		DataHex   string
		Zeros     int
		ExitCode  int64
	}
	streamExpect struct {
		Accepted                      bool
		Chunks                        int64
		StdoutHex, StderrHex, DataHex string
		Refused                       refserver.Reason
	}
)

// send does one step.
func (s streamStep) send(c *client, id string) {
	c.w.t.Helper()
	switch {
	case s.Chunk != nil:
		data, err := hex.DecodeString(s.Chunk.DataHex)
		if err != nil {
			c.w.t.Fatal(err)
		}
		data = append(data, make([]byte, s.Chunk.Zeros)...)
		for n := range max(s.Times, 1) {
			c.send(&wire.Chunk{Gen: c.gen, InstructionID: id, StreamSeq: s.Chunk.StreamSeq + n, Kind: s.Chunk.Kind, Data: data, ExitCode: s.Chunk.ExitCode})
		}
	case s.Outcome != nil:
		c.text(`{"t":"result","gen":"` + string(c.gen) + `","instructionId":"` + id + `","deviceSeq":1,"outcome":` + string(s.Outcome) + `}`)
	default:
		time.Sleep(time.Duration(s.WaitMs) * time.Millisecond)
	}
	synctest.Wait()
}

func TestStreamsAreJudgedAsTheVectorsSay(t *testing.T) {
	cases, err := testvectors.Cases[streamInput, streamExpect]("streams.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range cases {
		t.Run(v.Name, func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				got := map[wire.ChunkKind]*bytes.Buffer{wire.ChunkStdout: {}, wire.ChunkStderr: {}, wire.ChunkData: {}}
				what := refserver.Dispatch{Kind: v.Input.Kind, Args: wire.PathArgs{Path: "/f"},
					Deliver: func(kind wire.ChunkKind, data []byte) error { got[kind].Write(data); return nil }}
				switch v.Input.Kind {
				case wire.KindExec, wire.KindExecStream:
					what.Args = wire.ExecArgs{Command: "true"}
				case wire.KindReadTextLines:
					what.Args = wire.ReadLinesArgs{Path: "/f"}
				}
				k := w.connect(epochA)
				call := w.dispatch(what)
				for _, s := range v.Input.Steps {
					s.send(k, call.ID())
				}
				select {
				case <-call.Done():
				default:
					w.t.Fatal("nothing was decided")
				}
				how := w.settled(call)
				if v.Expect.Refused != "" {
					f, failed := how.Outcome.(wire.Failure)
					if how.By == refserver.ByResult || !failed || f.Code != wire.CodeOutcomeUnknown {
						w.t.Fatalf("settled by %s: %+v; want outcome_unknown for %s", how.By, how.Outcome, v.Expect.Refused)
					}
					var reasons []refserver.Reason
					for _, n := range w.s.Audit() {
						reasons = append(reasons, n.Reason)
						if n.Reason == v.Expect.Refused {
							return
						}
					}
					w.t.Fatalf("refused for %v, want %s", reasons, v.Expect.Refused)
				}
				if !v.Expect.Accepted || how.By != refserver.ByResult || how.Stream.Chunks != v.Expect.Chunks {
					w.t.Fatalf("settled by %s: %+v after %d chunks; want it accepted after %d", how.By, how.Outcome, how.Stream.Chunks, v.Expect.Chunks)
				}
				for kind, want := range map[wire.ChunkKind]string{wire.ChunkStdout: v.Expect.StdoutHex, wire.ChunkStderr: v.Expect.StderrHex, wire.ChunkData: v.Expect.DataHex} {
					if have := hex.EncodeToString(got[kind].Bytes()); have != want && len(have) < 1<<16 {
						w.t.Errorf("%s %s, want %s", kind, have, want)
					}
				}
			})
		})
	}
}
