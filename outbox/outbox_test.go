package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// chunkOf and resultOf decode a frame that must be one.
func chunkOf(t *testing.T, frame []byte) *wire.Chunk {
	t.Helper()
	c, ok := decode(t, frame).(*wire.Chunk)
	if !ok {
		t.Fatalf("want a chunk, got %.200s", frame)
	}
	return c
}

func resultOf(t *testing.T, frame []byte) *wire.Result {
	t.Helper()
	r, ok := decode(t, frame).(*wire.Result)
	if !ok {
		t.Fatalf("want a result, got %.200s", frame)
	}
	return r
}

func decode(t *testing.T, frame []byte) wire.DeviceFrame {
	t.Helper()
	f, err := wire.DecodeDevice(frame, wire.MaxFrameBytes)
	if err != nil {
		t.Fatalf("a server would refuse %.200s: %v", frame, err)
	}
	return f
}

// drain takes all frames there are, in a short form: "a0 a1 b0 a!" (! = result).
func drain(t *testing.T, o *outbox.Outbox) string {
	t.Helper()
	var said []string
	for {
		frame, ok := o.Next(nil)
		if !ok {
			return strings.Join(said, " ")
		}
		switch f := decode(t, frame).(type) {
		case *wire.Chunk:
			said = append(said, fmt.Sprint(f.InstructionID, f.StreamSeq))
		case *wire.Result:
			said = append(said, f.InstructionID+"!")
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func say(t *testing.T, l *outbox.Lane, words ...string) {
	t.Helper()
	for _, w := range words {
		must(t, l.Append(t.Context(), wire.ChunkStdout, []byte(w)))
	}
}

func TestNothingFlowsOutsideAConnection(t *testing.T) {
	o := outbox.New(outbox.Config{})
	l := o.Open("a")
	say(t, l, "x")
	if got := drain(t, o); got != "" {
		t.Errorf("before the first Resume: %s", got)
	}
	o.Resume("1", []string{"a"}, nil)
	say(t, l, "y")
	if got := drain(t, o); got != "a0 a1" {
		t.Errorf("got %q", got)
	}
	say(t, l, "z")
	o.Suspend()
	say(t, l, "z")
	l.Finish(wire.VoidOutcome{})
	if got := drain(t, o); got != "" {
		t.Errorf("after Suspend: %s", got)
	}
	o.AckChunk("a", 1)
	o.AckResult("a")
	if got := o.Holding(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("acknowledged without a connection: holding %v", got)
	}
}

func TestGenerationIsStampedAtSending(t *testing.T) {
	o := outbox.New(outbox.Config{})
	l := o.Open("a")
	say(t, l, "x")
	o.Resume("7", []string{"a"}, nil)
	first, _ := o.Next(nil)
	l.Finish(wire.ReadOutcome{})
	firstResult, _ := o.Next(nil)
	o.Suspend()
	o.Resume("99999999999999999999", []string{"a"}, map[string]int64{"a": -1})
	again, _ := o.Next(nil)
	againResult, _ := o.Next(nil)

	if g := chunkOf(t, first).Gen; g != "7" {
		t.Errorf("first sending stamped %s", g)
	}
	if g := chunkOf(t, again).Gen; g != "99999999999999999999" {
		t.Errorf("second sending stamped %s", g)
	}
	if !bytes.Equal(bytes.Replace(first, []byte(`"7"`), []byte(`"99999999999999999999"`), 1), again) {
		t.Errorf("more than the generation changed:\n%s\n%s", first, again)
	}
	if !bytes.Equal(bytes.Replace(firstResult, []byte(`"7"`), []byte(`"99999999999999999999"`), 1), againResult) {
		t.Errorf("more than the generation changed:\n%s\n%s", firstResult, againResult)
	}
}

func TestDeviceSeqIsAssignedOnce(t *testing.T) {
	o := outbox.New(outbox.Config{})
	for _, id := range []string{"a", "b"} {
		o.Open(id).Finish(wire.VoidOutcome{})
	}
	want := map[string]int64{}
	for gen := range 5 {
		o.Resume(wire.Gen(fmt.Sprint(gen)), []string{"a", "b"}, nil)
		for range 2 {
			frame, ok := o.Next(nil)
			if !ok {
				t.Fatal("a result that was not acknowledged is not sent again")
			}
			r := resultOf(t, frame)
			if was, ok := want[r.InstructionID]; ok && was != r.DeviceSeq {
				t.Errorf("deviceSeq of %s went from %d to %d", r.InstructionID, was, r.DeviceSeq)
			}
			want[r.InstructionID] = r.DeviceSeq
		}
		o.Suspend()
	}
	if want["a"] == want["b"] || want["a"] < 1 || want["b"] < 1 {
		t.Errorf("deviceSeqs %v: want two different ones from 1 on", want)
	}
}

func TestExitChunkEndsASuccessfulExecAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		outcome wire.Outcome
		want    string
	}{
		{wire.ExecOutcome{ExitCode: 137}, "a0 a1 a!"},
		{wire.ReadOutcome{}, "a0 a!"},
		{wire.CancelledOutcome{State: wire.CancelKilled}, "a0 a!"},
		{wire.Failf(wire.CodeTimeout, "stopped"), "a0 a!"},
	} {
		o := outbox.New(outbox.Config{})
		o.Resume("1", nil, nil)
		l := o.Open("a")
		say(t, l, "x")
		l.Finish(c.outcome)
		l.Finish(wire.ExecOutcome{ExitCode: 1}) // the first outcome counts
		if got := drain(t, o); got != c.want {
			t.Errorf("%T: sent %q, want %q", c.outcome, got, c.want)
		}
	}
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	o.Open("a").Finish(wire.ExecOutcome{ExitCode: 137})
	exit, _ := o.Next(nil)
	result, _ := o.Next(nil)
	if c := chunkOf(t, exit); c.StreamSeq != 0 || c.Kind != wire.ChunkExit || c.ExitCode != 137 {
		t.Errorf("exit chunk of a silent command: %s", exit)
	}
	if r := resultOf(t, result); r.Outcome != (wire.ExecOutcome{ExitCode: 137}) {
		t.Errorf("result: %s", result)
	}
}

func TestAppendRefusesWhatIsNoOutput(t *testing.T) {
	o := outbox.New(outbox.Config{})
	l := o.Open("a")
	for _, err := range []error{
		l.Append(t.Context(), wire.ChunkStdout, nil),
		l.Append(t.Context(), wire.ChunkStdout, make([]byte, wire.MaxChunkBytes+1)),
		l.Append(t.Context(), wire.ChunkExit, []byte("x")),
		l.Append(t.Context(), "stdin", []byte("x")),
	} {
		if !errors.Is(err, outbox.ErrChunk) {
			t.Errorf("got %v", err)
		}
	}
	l.Finish(wire.ReadOutcome{})
	if err := l.Append(t.Context(), wire.ChunkData, []byte("x")); !errors.Is(err, outbox.ErrFinished) {
		t.Errorf("after Finish: %v", err)
	}
	l = o.Open("b")
	o.Drop("b")
	if err := l.Append(t.Context(), wire.ChunkData, []byte("x")); !errors.Is(err, outbox.ErrDropped) {
		t.Errorf("after Drop: %v", err)
	}
	l.Finish(wire.VoidOutcome{})
	o.Resume("1", []string{"b"}, nil)
	if got := drain(t, o); got != "" {
		t.Errorf("a dropped instruction spoke: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Open("c").Append(ctx, wire.ChunkData, []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

func TestAnIDHasOneLane(t *testing.T) {
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	first := o.Open("a")
	second := o.Open("a")
	if err := second.Append(t.Context(), wire.ChunkStdout, []byte("x")); !errors.Is(err, outbox.ErrDropped) {
		t.Errorf("second lane: %v", err)
	}
	second.Finish(wire.VoidOutcome{})
	say(t, first, "x")
	first.Finish(wire.ReadOutcome{})
	if got := drain(t, o); got != "a0 a!" {
		t.Errorf("sent %q", got)
	}
}

func TestLanesTakeTurns(t *testing.T) {
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	flood, line := o.Open("f"), o.Open("l")
	say(t, flood, "1", "2", "3", "4")
	say(t, line, "1")
	line.Finish(wire.ReadOutcome{})
	if got := drain(t, o); got != "f0 l0 f1 l! f2 f3" {
		t.Errorf("order %q", got)
	}
}

func TestResumeFollowsTheServersList(t *testing.T) {
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	for _, id := range []string{"keep", "gone", "run"} {
		l := o.Open(id)
		say(t, l, "0", "1", "2", "3")
		if id != "run" {
			l.Finish(wire.ReadOutcome{})
		}
	}
	drain(t, o)
	o.AckChunk("run", 0)
	o.Suspend()
	o.Resume("2", []string{"run", "never-seen", "keep"}, map[string]int64{"keep": 1, "never-seen": -1})
	if got := drain(t, o); got != "keep2 run1 keep3 run2 keep! run3" {
		t.Errorf("sent %q", got)
	}
	if got := o.Holding(); !slices.Equal(got, []string{"keep", "run"}) {
		t.Errorf("holding %v", got)
	}
	if s := o.Stats(); s.Dropped != 1 || s.Results != 1 || s.Chunks != 5 {
		t.Errorf("stats %+v", s)
	}
}

func TestOddAcknowledgements(t *testing.T) {
	var log bytes.Buffer
	o := outbox.New(outbox.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	o.Resume("1", nil, nil)
	l := o.Open("a")
	say(t, l, "secret-0", "secret-1", "secret-2", "secret-3")
	for range 3 {
		_, _ = o.Next(nil)
	}
	held := func(want int) {
		t.Helper()
		if got := o.Stats().Chunks; got != want {
			t.Fatalf("holding %d chunks, want %d", got, want)
		}
	}
	o.AckChunk("a", -1)
	o.AckChunk("a", -1<<60)
	o.AckChunk("nobody", 2)
	o.AckResult("nobody")
	o.AckResult("a") // still running
	o.AckChunk("a", 3)
	o.AckChunk("a", wire.MaxSafeInteger)
	held(4)
	o.AckChunk("a", 1)
	held(2)
	o.AckChunk("a", 0) // backwards
	o.AckChunk("a", 1)
	held(2)
	l.Finish(wire.ReadOutcome{})
	o.AckResult("a") // finished, but its result was never sent
	if got := drain(t, o); got != "a3 a!" {
		t.Fatalf("sent %q", got)
	}
	o.Suspend()
	o.Resume("2", []string{"a"}, map[string]int64{"a": 0}) // takes back what it acknowledged
	held(2)
	o.Suspend()
	o.Resume("3", []string{"a"}, map[string]int64{"a": 4}) // never sent
	held(2)
	o.AckResult("a") // sent on an earlier connection only: the server may have it
	held(0)
	if got := drain(t, o); got != "" || len(o.Holding()) != 0 || o.Unacked() != 0 {
		t.Errorf("after the acknowledgement: sent %q, holding %v", got, o.Holding())
	}
	if s := o.Stats(); s.OddAcks != 6 {
		t.Errorf("counted %d odd acknowledgements, want 6", s.OddAcks)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("output in the log: %s", log.String())
	}
}

func TestWatermarkOfAChunkSentOnAnEarlierConnectionCounts(t *testing.T) {
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	l := o.Open("a")
	say(t, l, "0", "1", "2")
	drain(t, o)
	o.Suspend()
	o.Resume("2", []string{"a"}, map[string]int64{"a": -1})
	o.AckChunk("a", 2) // it was in the server's reorder buffer, say
	say(t, l, "3")
	if got := drain(t, o); got != "a3" {
		t.Errorf("sent %q", got)
	}
}

func TestWindowIsWhatAReorderBufferHolds(t *testing.T) {
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	l := o.Open("a")
	for range 200 {
		say(t, l, "x")
	}
	l.Finish(wire.ReadOutcome{})
	for from := 0; from < 200; from += 64 {
		to := min(from+64, 200)
		got := drain(t, o)
		if n := len(strings.Fields(strings.TrimSuffix(got, " a!"))); n != to-from {
			t.Fatalf("%d chunks past watermark %d", n, from-1)
		}
		if strings.HasSuffix(got, "!") != (to == 200) {
			t.Fatalf("result at chunk %d", to)
		}
		o.AckChunk("a", int64(to-1))
	}
}

func TestChunksGoAgainWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{})
		o.Resume("1", nil, nil)
		l := o.Open("a")
		say(t, l, "0", "1", "2")
		drain(t, o)
		wait := func(d time.Duration) string {
			time.Sleep(d)
			o.Tick(time.Now())
			return drain(t, o)
		}
		for _, step := range []struct {
			wait time.Duration
			want string
		}{
			{9999 * time.Millisecond, ""},
			{time.Millisecond, "a0 a1 a2"},
			{19999 * time.Millisecond, ""},
			{time.Millisecond, "a0 a1 a2"},
			{39999 * time.Millisecond, ""},
			{time.Millisecond, "a0 a1 a2"},
			{59999 * time.Millisecond, ""},
			{time.Millisecond, "a0 a1 a2"},
			{60 * time.Second, "a0 a1 a2"},
		} {
			if got := wait(step.wait); got != step.want {
				t.Fatalf("after %v more: %q, want %q", step.wait, got, step.want)
			}
		}
		o.AckChunk("a", 0) // progress: patience starts over
		if got := wait(9999 * time.Millisecond); got != "" {
			t.Errorf("too early: %q", got)
		}
		if got := wait(time.Millisecond); got != "a1 a2" {
			t.Errorf("after progress: %q", got)
		}
		if s := o.Stats(); s.ChunksResent != 17 {
			t.Errorf("%d chunks counted as sent again", s.ChunksResent)
		}
	})
}

func TestWhatIsAcknowledgedWhileItWaitsToGoAgainIsNotSent(t *testing.T) {
	for _, finished := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := outbox.New(outbox.Config{})
			o.Resume("1", nil, nil)
			l := o.Open("a")
			if err := l.Append(t.Context(), wire.ChunkStdout, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if finished {
				l.Finish(wire.Failf(wire.CodeTimeout, "stopped"))
			}
			drain(t, o)
			time.Sleep(10 * time.Second)
			o.Tick(time.Now()) // the chunk is due again
			o.AckChunk("a", 0) // and then need not be
			if said := drain(t, o); said != "" {
				t.Errorf("finished %v: sent %s", finished, said)
			}
			if got := o.Holding(); !slices.Equal(got, []string{"a"}) {
				t.Fatalf("finished %v: holds %v", finished, got)
			}
			if !finished {
				if err := l.Append(t.Context(), wire.ChunkStdout, []byte("y")); err != nil {
					t.Errorf("the command's next word: %v", err)
				}
			}
		})
	}
}

func TestResultGoesAgainBoundedly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := outbox.New(outbox.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		o.Resume("1", nil, nil)
		start := time.Now()
		o.Open("a").Finish(wire.VoidOutcome{})
		var at []int
		for range 700 {
			if drain(t, o) == "a!" {
				at = append(at, int(time.Since(start).Seconds()))
			}
			time.Sleep(time.Second)
			o.Tick(time.Now())
			if time.Since(start) < 10*time.Minute && o.Unacked() != 1 {
				t.Fatalf("given up after %v", time.Since(start))
			}
		}
		if want := []int{0, 15, 45, 105, 225, 345, 465, 585}; !slices.Equal(at, want) {
			t.Errorf("sent at %v s, want %v", at, want)
		}
		if o.Unacked() != 0 || o.Stats().GivenUp != 1 || !strings.Contains(log.String(), "given up") {
			t.Errorf("not given up after ten minutes: %+v, log %q", o.Stats(), log.String())
		}
	})
}

func TestResultGoesAgainOnEachConnectionTenTimesInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{})
		o.Open("a").Finish(wire.VoidOutcome{})
		time.Sleep(time.Hour) // offline: age counts from the first sending
		sends := 0
		for range 20 {
			o.Tick(time.Now())
			o.Resume("1", []string{"a"}, nil)
			if drain(t, o) == "a!" {
				sends++
			}
			o.Suspend()
			time.Sleep(time.Second)
		}
		if sends != 10 {
			t.Errorf("sent %d times", sends)
		}
		if o.Unacked() != 1 {
			t.Error("given up before the last sending could be acknowledged")
		}
		time.Sleep(15 * time.Second)
		o.Tick(time.Now())
		if o.Unacked() != 0 {
			t.Error("not given up")
		}
	})
}

// A server that has settled an instruction behind our back takes its chunks without
// a word (§2.4), so what is past the window, and the result, never get their turn.
func TestAResultBehindOutputThatIsNeverAcknowledgedIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{})
		o.Resume("1", nil, nil)
		for _, id := range []string{"written off", "slow", "running"} {
			l := o.Open(id)
			for range 200 {
				say(t, l, "x")
			}
			if id != "running" {
				l.Finish(wire.ReadOutcome{})
			}
		}
		acked := int64(-1)
		for began := time.Now(); time.Since(began) < 10*time.Minute; {
			drain(t, o)
			if o.Stats().GivenUp != 0 {
				t.Fatalf("given up after %v", time.Since(began))
			}
			time.Sleep(time.Second)
			o.Tick(time.Now())
			if time.Since(began)%(5*time.Minute) == 0 {
				acked++
				o.AckChunk("slow", acked)
			}
		}
		if got := o.Holding(); !slices.Equal(got, []string{"slow", "running"}) || o.Stats().GivenUp != 1 {
			t.Errorf("after ten minutes without progress %q are held", got)
		}
	})
}

// A connection that is away is not a server that stays silent.
func TestAResultThatWasNeverSentOutlastsAnyAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{})
		o.Resume("1", nil, nil)
		l := o.Open("a")
		for range 65 {
			say(t, l, "x")
		}
		l.Finish(wire.ReadOutcome{})
		drain(t, o)
		o.Suspend()
		for range 20 {
			time.Sleep(time.Minute)
			o.Tick(time.Now())
		}
		o.Resume("2", []string{"a"}, map[string]int64{"a": 63})
		o.Tick(time.Now())
		if got := drain(t, o); got != "a64 a!" {
			t.Errorf("sent %q", got)
		}
	})
}

func TestAnswerThatFitsNoFrameBecomesAFailure(t *testing.T) {
	huge := make([]wire.FileInfo, 20_000)
	for i := range huge {
		huge[i] = wire.FileInfo{Path: fmt.Sprintf("/%0100d", i), Kind: wire.FileFile}
	}
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	o.Open("a").Finish(wire.StatOutcome{Entries: huge})
	o.Open("b").Finish(wire.StatOutcome{CanonicalPath: "/" + strings.Repeat("x", wire.MaxFrameBytes)})
	o.Open("c").Finish(wire.StatOutcome{Entries: huge[:5000]})
	for _, c := range []struct{ words []string }{
		{[]string{"20000 entries", "1048576"}},
		{[]string{"1048576"}},
	} {
		frame, _ := o.Next(nil)
		f, ok := resultOf(t, frame).Outcome.(wire.Failure)
		if !ok || f.Code != wire.CodeUnknown {
			t.Fatalf("got %.200s", frame)
		}
		for _, w := range c.words {
			if !strings.Contains(f.Message, w) {
				t.Errorf("message %q does not say %s", f.Message, w)
			}
		}
	}
	frame, _ := o.Next(nil)
	if s, ok := resultOf(t, frame).Outcome.(wire.StatOutcome); !ok || len(s.Entries) != 5000 {
		t.Errorf("an answer that fits was changed: %.200s", frame)
	}
}

func TestAnIDThatFitsNoFrameIsGivenUp(t *testing.T) {
	o := outbox.New(outbox.Config{})
	o.Resume("1", nil, nil)
	l := o.Open(strings.Repeat("i", wire.MaxFrameBytes))
	say(t, l, "x")
	l.Finish(wire.ReadOutcome{})
	say(t, o.Open("b"), "x")
	if got := drain(t, o); got != "b0" {
		t.Errorf("sent %.100q", got)
	}
	if s := o.Stats(); s.GivenUp != 1 || s.Lanes != 1 || s.Results != 0 || s.Chunks != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestFinishedLongestAgoGoesFirstWhenTooManyWait(t *testing.T) {
	o := outbox.New(outbox.Config{Held: 3})
	a := o.Open("a")
	for _, id := range []string{"b", "c", "d"} {
		o.Open(id).Finish(wire.VoidOutcome{})
	}
	a.Finish(wire.VoidOutcome{})
	if got := o.Holding(); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("holding %v", got)
	}
	if o.Unacked() != 3 {
		t.Errorf("%d results", o.Unacked())
	}
}

func TestWhatIsGivenUpSaysWhyAndDoesNotFillTheLog(t *testing.T) {
	// silent is what the server never acknowledges; told is a line of the log.
	type told struct {
		text string
		at   time.Duration
	}
	for why, silent := range map[string]func(o *outbox.Outbox){
		"more results than are kept wait": func(o *outbox.Outbox) {
			for i := range 5000 {
				o.Open(fmt.Sprint("exists-", i)).Finish(wire.VoidOutcome{})
			}
		},
		"more bytes of results than are kept wait": func(o *outbox.Outbox) {
			for i := range 100 {
				o.Open(fmt.Sprint("exists-", i)).Finish(wire.StatOutcome{CanonicalPath: "/" + strings.Repeat("x", 900<<10)})
			}
		},
		"it was never acknowledged": func(o *outbox.Outbox) {
			for i := range 500 {
				o.Open(fmt.Sprint("exists-", i)).Finish(wire.VoidOutcome{})
			}
			drain(t, o)
			time.Sleep(11 * time.Minute)
		},
		"the output before it was never acknowledged": func(o *outbox.Outbox) {
			for i := range 3 {
				l := o.Open(fmt.Sprint("exists-", i))
				for range 100 {
					say(t, l, "x")
				}
				l.Finish(wire.ReadOutcome{})
			}
			drain(t, o)
			time.Sleep(11 * time.Minute)
		},
		"above what was sent": func(o *outbox.Outbox) {
			o.Open("exists-0")
			for i := range 5000 {
				o.AckChunk("exists-0", int64(i))
			}
		},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var log bytes.Buffer
				var lines []told
				o := outbox.New(outbox.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
				read := func() {
					for line := range strings.Lines(log.String()) {
						lines = append(lines, told{line, time.Since(start)})
					}
					log.Reset()
				}
				o.Resume("1", nil, nil)
				silent(o)
				read()
				for range 5 * 60 {
					o.Tick(time.Now())
					read()
					time.Sleep(time.Second)
				}
				if len(lines) != 2 {
					t.Fatalf("%d lines, first %v", len(lines), lines[:min(5, len(lines))])
				}
				for _, line := range lines {
					if !strings.Contains(line.text, why) || !strings.Contains(line.text, "exists-") {
						t.Errorf("the log says %q", line.text)
					}
				}
				var more int
				if _, count, ok := strings.Cut(lines[1].text, "more="); !ok {
					t.Errorf("the second line has no count: %q", lines[1].text)
				} else if _, err := fmt.Sscan(count, &more); err != nil {
					t.Error(err)
				}
				if s := o.Stats(); int64(more)+1 != s.GivenUp+s.OddAcks {
					t.Errorf("the lines speak of %d, and %d were given up", more+1, s.GivenUp+s.OddAcks)
				}
				if gap := lines[1].at - lines[0].at; gap > time.Minute+time.Second {
					t.Errorf("the rest is said %v later", gap)
				}
			})
		})
	}
}

func TestHugeResultsAreBoundedToo(t *testing.T) {
	o := outbox.New(outbox.Config{TotalBytes: 1 << 20})
	for i := range 10 {
		o.Open(fmt.Sprint(i)).Finish(wire.StatOutcome{CanonicalPath: "/" + strings.Repeat("x", 300<<10)})
	}
	if got := o.Holding(); !slices.Equal(got, []string{"7", "8", "9"}) {
		t.Errorf("holding %v", got)
	}
	o.Resume("1", o.Holding(), nil)
	drain(t, o)
	for _, id := range o.Holding() {
		o.AckResult(id)
	}
	if s := o.Stats(); s.Results != 0 || s.ResultBytes != 0 {
		t.Errorf("after the acknowledgements: %+v", s)
	}
}

func TestReadySignals(t *testing.T) {
	o := outbox.New(outbox.Config{})
	signalled := func() bool {
		select {
		case <-o.Ready():
			return true
		default:
			return false
		}
	}
	l := o.Open("a")
	say(t, l, "0")
	if signalled() {
		t.Error("without a connection")
	}
	o.Resume("1", []string{"a"}, nil)
	if !signalled() {
		t.Error("not on Resume")
	}
	drain(t, o)
	if signalled() {
		t.Error("with nothing to send")
	}
	say(t, l, "1")
	if !signalled() {
		t.Error("not on Append")
	}
	drain(t, o)
	l.Finish(wire.ReadOutcome{})
	if !signalled() {
		t.Error("not on Finish")
	}
}
