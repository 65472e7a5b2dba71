package refserver_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// sink is a consumer that keeps what it is given.
type sink struct{ bytes.Buffer }

func (s *sink) take(_ wire.ChunkKind, data []byte) error { s.Write(data); return nil }

func (c *client) acked(upTo int64) {
	c.w.t.Helper()
	if a := expect[*wire.ChunkAck](c); a.UpToStreamSeq != upTo {
		c.w.t.Fatalf("watermark %d, want %d", a.UpToStreamSeq, upTo)
	}
}

func TestChunksAreDeliveredInOrder(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		var got sink
		k, call := w.started(refserver.Dispatch{Deliver: got.take})
		for _, step := range []struct {
			seq, watermark int64
			data           string
		}{{2, -1, "c"}, {1, -1, "b"}, {4, -1, "e"}, {0, 2, "a"}, {3, 4, "d"}} {
			k.stdout(call.ID(), step.seq, step.data)
			k.acked(step.watermark)
		}
		k.finish(call)
		if got.String() != "abcde" {
			w.t.Fatalf("%q", got.String())
		}
		w.violated()
	})
}

func TestResentChunksAreAbsorbedAndAckedAgain(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		var got sink
		k, call := w.started(refserver.Dispatch{Deliver: got.take})
		k.stdout(call.ID(), 0, "a")
		k.acked(0)
		k.stdout(call.ID(), 0, "a")
		k.acked(0)
		w.violated()
		k.stdout(call.ID(), 0, "X") // absorbed as well, but noted
		k.acked(0)
		w.violated(refserver.ChunkChanged)
		k.stdout(call.ID(), 2, "c")
		k.acked(0)
		k.stdout(call.ID(), 2, "X") // first write wins
		k.acked(0)
		k.stdout(call.ID(), 1, "b")
		k.acked(2)
		k.finish(call)
		if got.String() != "abc" {
			w.t.Fatalf("%q", got.String())
		}
	})
}

func TestAGapFailsTheInstructionAfter30s(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		k.stdout(call.ID(), 1, "b")
		k.acked(-1)
		time.Sleep(29 * time.Second)
		k.stdout(call.ID(), 0, "a")
		k.acked(1)
		k.stdout(call.ID(), 3, "d")
		k.acked(1)
		time.Sleep(29 * time.Second) // a new gap has its own time
		if call.State() != wire.StateDispatchCommitted {
			w.t.Fatalf("%s", call.State())
		}
		time.Sleep(2 * time.Second)
		st := w.settledBy(call, refserver.ByGap)
		if st.Stream.Fault != refserver.ChunkGap || st.Stream.Chunks != 2 {
			w.t.Fatalf("%+v", st.Stream)
		}
		w.violated(refserver.ChunkGap)
		k.isOpen()
		k.stdout(call.ID(), 2, "c") // late: no ack
		k.silent()
	})
}

func TestTheReorderBufferIsBounded(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		for seq := int64(1); seq <= 64; seq++ {
			k.stdout(call.ID(), seq, "x")
			k.acked(-1)
		}
		k.stdout(call.ID(), 65, "x")
		w.settledBy(call, refserver.ByReorder)
		w.violated(refserver.ReorderOverflow)
	})
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		for seq := int64(1); seq <= 4; seq++ {
			k.stdout(call.ID(), seq, strings.Repeat("x", 512<<10))
			k.acked(-1)
		}
		w.violated()
		k.stdout(call.ID(), 5, "x")
		w.settledBy(call, refserver.ByReorder)
		w.violated(refserver.ReorderOverflow)
	})
}

func TestTheExitChunkIsCrossChecked(t *testing.T) {
	for _, c := range []struct {
		name  string
		speak func(k *client, id string)
		want  refserver.Reason // "": fine
	}{
		{"no output at all", func(k *client, id string) { k.exit(id, 0, 3) }, ""},
		{"output before it", func(k *client, id string) { k.stdout(id, 0, "x"); k.exit(id, 1, 3) }, ""},
		{"none", func(k *client, id string) { k.stdout(id, 0, "x") }, refserver.ExitMissing},
		{"nothing", func(*client, string) {}, refserver.ExitMissing},
		{"two", func(k *client, id string) { k.exit(id, 0, 3); k.exit(id, 1, 3) }, refserver.ExitDuplicate},
		{"not last", func(k *client, id string) { k.exit(id, 0, 3); k.stdout(id, 1, "x") }, refserver.ExitNotLast},
		{"another code", func(k *client, id string) { k.exit(id, 0, 4) }, refserver.ExitCodeMismatch},
		{"a missing chunk", func(k *client, id string) { k.exit(id, 1, 3) }, refserver.StreamIncomplete},
		{"file content", func(k *client, id string) {
			k.send(&wire.Chunk{Gen: k.gen, InstructionID: id, Kind: wire.ChunkData, Data: []byte("x")})
			k.exit(id, 1, 3)
		}, refserver.ChunkKind},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, kind := range []wire.Kind{wire.KindExec, wire.KindExecStream} {
				simulate(t, refserver.Config{}, func(w *world) {
					k, call := w.started(refserver.Dispatch{Kind: kind, Args: wire.ExecArgs{Command: "x"}})
					c.speak(k, call.ID())
					k.result(call.ID(), wire.ExecOutcome{ExitCode: 3})
					st := w.settled(call)
					if c.want == "" {
						w.settledBy(call, refserver.ByResult)
						w.violated()
						return
					}
					w.settledBy(call, refserver.ByBadResult)
					if st.Stream.Fault != c.want || len(w.s.Violations()) == 0 || w.s.Violations()[0].Reason != c.want {
						w.t.Fatalf("%+v, violations %v, want %s", st, w.s.Violations(), c.want)
					}
				})
			}
		})
	}
}

func TestFailedAndCancelledOutcomesAreAlwaysBelieved(t *testing.T) {
	for _, o := range []wire.Outcome{wire.Failf(wire.CodeTimeout, "killed"), wire.CancelledOutcome{State: wire.CancelKilled}} {
		simulate(t, refserver.Config{}, func(w *world) {
			k, call := w.started(refserver.Dispatch{})
			k.stdout(call.ID(), 0, "part")
			k.acked(0)
			k.result(call.ID(), o)
			expect[*wire.ResultAck](k)
			if st := w.settledBy(call, refserver.ByResult); st.Outcome != o {
				w.t.Fatalf("%+v", st)
			}
			w.violated()
		})
	}
}

func TestEachKindOwesItsOutcome(t *testing.T) {
	yes := true
	info := wire.FileInfo{Path: "/a", Kind: wire.FileFile}
	good := map[wire.Kind]wire.Outcome{
		wire.KindReadTextFile: wire.ReadOutcome{}, wire.KindReadTextLines: wire.ReadOutcome{}, wire.KindReadBinaryFile: wire.ReadOutcome{},
		wire.KindWriteFile: wire.WriteOutcome{CanonicalPath: "/a"}, wire.KindWriteFileExclusive: wire.WriteOutcome{CanonicalPath: "/a", Created: &yes},
		wire.KindWriteFileGuarded: wire.WriteOutcome{CanonicalPath: "/a", Inode: "7"}, wire.KindAppendFile: wire.VoidOutcome{},
		wire.KindFileInfo: wire.StatOutcome{Info: &info}, wire.KindListDir: wire.StatOutcome{Entries: []wire.FileInfo{}},
		wire.KindCanonicalPath: wire.StatOutcome{CanonicalPath: "/a"}, wire.KindExists: wire.StatOutcome{ExistsValue: &yes},
		wire.KindReadLink: wire.StatOutcome{LinkTarget: &wire.LinkTarget{}}, wire.KindCreateDir: wire.VoidOutcome{}, wire.KindRemove: wire.VoidOutcome{},
		wire.KindCreateTempDir: wire.WriteOutcome{CanonicalPath: "/t"}, wire.KindCreateTempFile: wire.WriteOutcome{CanonicalPath: "/t"},
	}
	type verdict struct {
		outcome wire.Outcome
		want    refserver.Reason
	}
	for _, kind := range wire.Kinds() {
		cases := map[string]verdict{}
		switch kind {
		case wire.KindExec, wire.KindExecStream, wire.KindStatBatch:
			continue // the exit chunk's test; not dispatched
		}
		cases["good"] = verdict{good[kind], ""}
		for other, o := range good {
			if !wire.Fits(kind, o) {
				cases["as "+string(other)] = verdict{o, refserver.OutcomeKind}
			}
		}
		switch good[kind].(type) {
		case wire.WriteOutcome:
			cases["relative receipt"] = verdict{wire.WriteOutcome{CanonicalPath: "a"}, refserver.OutcomeMembers}
			cases["receipt with dots"] = verdict{wire.WriteOutcome{CanonicalPath: "/a/../b"}, refserver.OutcomeMembers}
		case wire.StatOutcome:
			o := good[kind].(wire.StatOutcome)
			o.ExistsValue, o.CanonicalPath = &yes, "/a"
			cases["more than asked"] = verdict{o, refserver.OutcomeSurplus}
		}
		t.Run(string(kind), func(t *testing.T) {
			for name, c := range cases {
				simulate(t, refserver.Config{}, func(w *world) {
					k, call := w.started(refserver.Dispatch{Kind: kind, Args: argsOf(kind)})
					k.result(call.ID(), c.outcome)
					by := refserver.ByBadResult
					if c.want == "" || c.want == refserver.OutcomeSurplus {
						by = refserver.ByResult
					}
					w.settledBy(call, by)
					if c.want == "" {
						w.violated()
					} else {
						w.violated(c.want)
					}
					if t.Failed() {
						t.Logf("case %s", name)
					}
				})
			}
		})
	}
}

func argsOf(kind wire.Kind) wire.Args {
	switch kind {
	case wire.KindExec, wire.KindExecStream:
		return wire.ExecArgs{Command: "true"}
	case wire.KindReadTextLines:
		return wire.ReadLinesArgs{Path: "/a"}
	case wire.KindWriteFile, wire.KindWriteFileExclusive, wire.KindAppendFile:
		return wire.WriteArgs{Path: "/a"}
	case wire.KindWriteFileGuarded:
		return wire.WriteArgs{Path: "/a", Expect: &wire.Expect{CanonicalPath: "/a"}}
	case wire.KindCreateDir, wire.KindRemove:
		return wire.DirArgs{Path: "/a"}
	case wire.KindCreateTempDir, wire.KindCreateTempFile:
		return wire.TempArgs{}
	}
	return wire.PathArgs{Path: "/a"}
}

func TestAReadIsDataChunksAndNoExit(t *testing.T) {
	for _, c := range []struct {
		kind wire.ChunkKind
		want refserver.Reason
	}{{wire.ChunkData, ""}, {wire.ChunkStdout, refserver.ChunkKind}, {wire.ChunkExit, refserver.ChunkKind}} {
		simulate(t, refserver.Config{}, func(w *world) {
			k, call := w.started(refserver.Dispatch{Kind: wire.KindReadTextFile, Args: wire.PathArgs{Path: "/a"}})
			k.send(&wire.Chunk{Gen: k.gen, InstructionID: call.ID(), Kind: c.kind, Data: []byte{}})
			k.acked(0)
			k.result(call.ID(), wire.ReadOutcome{})
			if c.want == "" {
				w.settledBy(call, refserver.ByResult)
				w.violated()
				return
			}
			w.settledBy(call, refserver.ByBadResult)
			w.violated(c.want, c.want)
		})
	}
}

func TestOutputAfterTheResultContradictsIt(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		k, call := w.started(refserver.Dispatch{Deliver: func(wire.ChunkKind, []byte) error { <-release; return nil }})
		k.stdout(call.ID(), 0, "a")
		k.acked(0)
		k.exit(call.ID(), 1, 0)
		k.acked(1)
		k.result(call.ID(), wire.ExecOutcome{})
		k.silent() // the consumer has not taken everything: not settled, not acked
		k.exit(call.ID(), 1, 0)
		k.acked(1) // a resend is no new output
		k.stdout(call.ID(), 2, "b")
		synctest.Wait()
		w.violated(refserver.NotCommitted)
		free()
		w.settledBy(call, refserver.ByChunkAfter)
	})
	simulate(t, refserver.Config{}, func(w *world) {
		k, call := w.started(refserver.Dispatch{})
		k.finish(call)
		k.stdout(call.ID(), 1, "b") // settled: dropped in silence, and noted here
		k.silent()
		w.settledBy(call, refserver.ByResult)
		w.violated(refserver.ChunkAfterResult)
	})
}

func TestABufferedChunkSentAgainIsNoOutputAfterTheResult(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		k, call := w.started(refserver.Dispatch{Deliver: func(wire.ChunkKind, []byte) error { <-release; return nil }})
		k.stdout(call.ID(), 0, "a")
		k.acked(0)
		k.stdout(call.ID(), 2, "c")
		k.acked(0)
		failed := wire.Failf(wire.CodeUnknown, "over a gap")
		k.result(call.ID(), failed)
		k.stdout(call.ID(), 2, "c") // kept as first written, and acked again
		k.acked(0)
		free()
		expect[*wire.ResultAck](k)
		if st := w.settledBy(call, refserver.ByResult); st.Outcome != failed {
			w.t.Fatalf("%+v", st)
		}
		w.violated()
	})
}

func TestAConsumerThatFallsBehindCostsTheCommand(t *testing.T) {
	for _, c := range []struct {
		name string
		fit  int64 // chunks beyond the one in the consumer's hands
		size int
	}{{"bytes", 31, 64 << 10}, {"entries, though empty", 8192, 0}} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, refserver.Config{}, func(w *world) {
				release := make(chan struct{})
				free := sync.OnceFunc(func() { close(release) })
				defer free()
				k, call := w.started(refserver.Dispatch{Deliver: func(wire.ChunkKind, []byte) error { <-release; return nil }})
				k.stdout(call.ID(), 0, "x")
				k.acked(0)
				k.silent()
				for seq := int64(1); seq <= c.fit; seq++ {
					k.stdout(call.ID(), seq, strings.Repeat("x", c.size))
					k.acked(seq)
				}
				k.silent()
				k.stdout(call.ID(), c.fit+1, strings.Repeat("x", c.size))
				if f := expect[*wire.Cancel](k); f.InstructionID != call.ID() {
					w.t.Fatalf("%+v", f)
				}
				free()
				k.result(call.ID(), wire.CancelledOutcome{State: wire.CancelKilled})
				if st := w.settledBy(call, refserver.ByResult); !st.Stream.Overflow {
					w.t.Fatalf("%+v", st)
				}
				w.violated() // the consumer's fault
			})
		})
	}
}

func TestAckDeliveredHoldsTheAckUntilTheConsumerTookIt(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		next := make(chan struct{})
		k, call := w.started(refserver.Dispatch{AckDelivered: true, Deliver: func(wire.ChunkKind, []byte) error { <-next; return nil }})
		for seq := range int64(3) {
			k.stdout(call.ID(), seq, "x")
		}
		k.exit(call.ID(), 3, 0)
		k.silent()
		k.stdout(call.ID(), 1, "x") // a resend hears how far it is
		k.acked(-1)
		for seq := range int64(2) {
			next <- struct{}{}
			k.acked(seq)
		}
		// After a reconnect the watermark is what was acknowledged.
		_ = k.ws.CloseNow()
		k = w.dial()
		if ack := k.handshake(epochA); ack.ChunkWatermarks[call.ID()] != 1 {
			w.t.Fatalf("%+v", ack)
		}
		k.send(&wire.GenerationAck{Gen: k.gen})
		k.stdout(call.ID(), 2, "x")
		k.acked(1)
		k.exit(call.ID(), 3, 0)
		k.acked(1)
		next <- struct{}{}
		synctest.Wait()
		k.result(call.ID(), wire.ExecOutcome{})
		w.settledBy(call, refserver.ByResult)
		w.violated()
	})
}

// A device that hears resultAck lets go, so a result sent again may not be acknowledged
// while the next helloAck would still list its instruction.
func TestAResentResultIsAckedWhenItIsInTheBooksAndNoSooner(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		next := make(chan struct{})
		k, call := w.started(refserver.Dispatch{Deliver: func(wire.ChunkKind, []byte) error { <-next; return nil }})
		k.stdout(call.ID(), 0, "x")
		k.acked(0)
		k.exit(call.ID(), 1, 0)
		k.acked(1)
		send := func() {
			k.send(&wire.Result{Gen: k.gen, InstructionID: call.ID(), DeviceSeq: 4, Outcome: wire.ExecOutcome{}})
		}
		send()
		send()
		k.silent()
		if call.State() != wire.StateDispatchCommitted {
			w.t.Fatalf("state %s", call.State())
		}
		next <- struct{}{}
		if f := expect[*wire.ResultAck](k); f.InstructionID != call.ID() {
			w.t.Errorf("got %+v", f)
		}
		w.settledBy(call, refserver.ByResult)
		w.violated()
	})
}

func TestWhatWasDeliveredDuringTheFenceIsAckedAfterIt(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		next := make(chan struct{})
		what := patient
		what.AckDelivered, what.Deliver = true, func(wire.ChunkKind, []byte) error { <-next; return nil }
		k, call := w.started(what)
		k.stdout(call.ID(), 0, "x")
		k.silent()
		k.cutOff()
		k = w.dial()
		if ack := k.handshake(epochA); ack.ChunkWatermarks[call.ID()] != -1 {
			w.t.Fatalf("%+v", ack)
		}
		next <- struct{}{}
		k.silent()
		k.send(&wire.GenerationAck{Gen: k.gen})
		k.acked(0)
		k.finish(call)
	})
}

func TestAConsumerThatFailsCancelsTheCommand(t *testing.T) {
	simulate(t, refserver.Config{}, func(w *world) {
		broken := errors.New("disk full")
		k, call := w.started(refserver.Dispatch{AckDelivered: true, Deliver: func(wire.ChunkKind, []byte) error { return broken }})
		k.stdout(call.ID(), 0, "x")
		expect[*wire.Cancel](k)
		k.acked(0)
		k.stdout(call.ID(), 1, "x") // still acknowledged, so that the device gets done
		k.acked(1)
		k.result(call.ID(), wire.CancelledOutcome{State: wire.CancelKilled})
		if st := w.settledBy(call, refserver.ByResult); !errors.Is(st.Stream.DeliverErr, broken) {
			w.t.Fatalf("%+v", st)
		}
	})
}
