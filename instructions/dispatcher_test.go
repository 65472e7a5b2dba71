package instructions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

func TestSupportsIsTheTableLessWhatIsExcludedInProtocolOrder(t *testing.T) {
	all := map[wire.Kind]Handler{}
	for _, k := range wire.Kinds() {
		all[k] = exitZero
	}
	delete(all, wire.KindStatBatch)
	d := New(Config{Handlers: all, Excluded: []wire.Kind{wire.KindWriteFileGuarded}})
	want := slices.DeleteFunc(wire.Kinds(), func(k wire.Kind) bool {
		return k == wire.KindStatBatch || k == wire.KindWriteFileGuarded
	})
	if got := d.Supports(); !slices.Equal(got, want) {
		t.Errorf("Supports() = %v, want %v", got, want)
	}
	d.Supports()[0] = "spoiled"
	if got := d.Supports(); !slices.Equal(got, want) {
		t.Errorf("a caller changed what is declared: %v", got)
	}
}

func TestAnIdRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			runs.Add(1)
			time.Sleep(time.Second)
			return exitZero(ctx, c)
		}})
		b.d.Instruct(ask("a", wire.KindExec, aCommand))
		b.d.Instruct(ask("a", wire.KindExec, aCommand)) // while it runs
		time.Sleep(2 * time.Second)
		b.d.Instruct(ask("a", wire.KindExec, aCommand)) // unacknowledged
		b.outcome("a")
		b.d.Instruct(ask("a", wire.KindExec, aCommand)) // released
		b.d.Answer("b", wire.Failf(wire.CodeTargetUnavailable, "never seen"))
		b.d.Instruct(ask("b", wire.KindExec, aCommand)) // answered for
		time.Sleep(time.Minute)
		b.outcome("a")
		b.outcome("b")
		if n := runs.Load(); n != 1 {
			t.Errorf("ran %d times, want once", n)
		}
		b.finish()
	})
}

func TestWhatCannotBeDoneIsAnswered(t *testing.T) {
	problem := ask("problem", wire.KindExec, aCommand)
	problem.Problem = errors.New("timeoutMs is missing")
	table := []struct {
		in   *wire.Instruction
		want wire.ErrorCode
		says string
	}{
		{problem, wire.CodeInvalid, "timeoutMs is missing"},
		{ask("no args", wire.KindExec, ``), wire.CodeInvalid, "args"},
		{ask("null args", wire.KindExec, `null`), wire.CodeInvalid, "args"},
		{ask("no command", wire.KindExec, `{}`), wire.CodeInvalid, "command"},
		{ask("number", wire.KindExec, `{"command":7}`), wire.CodeInvalid, "command"},
		{ask("other kind", "teleport", `{}`), wire.CodeNotSupported, "teleport"},
		{ask("no handler", wire.KindReadTextFile, aPath), wire.CodeNotSupported, "readTextFile"},
		{ask("excluded", wire.KindExists, aPath), wire.CodeNotSupported, "exists"},
		{askWithin("no time", wire.KindExec, aCommand, 0), wire.CodeTimeout, "nothing was done"},
		{askWithin("less than none", wire.KindExec, aCommand, -time.Second), wire.CodeTimeout, "nothing was done"},
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.d = New(Config{Outbox: b.o, Log: b.d.log, Now: time.Now, Observe: b.see, Excluded: []wire.Kind{wire.KindExists}, Handlers: handlers{
			wire.KindExec:   func(context.Context, *Call) wire.Outcome { panic("ran") },
			wire.KindExists: func(context.Context, *Call) wire.Outcome { panic("ran") },
		}})
		for _, row := range table {
			b.d.Instruct(row.in)
		}
		for _, row := range table {
			id := row.in.InstructionID
			f, ok := b.outcome(id).(wire.Failure)
			if !ok || f.Code != row.want || !strings.Contains(f.Message, row.says) {
				t.Errorf("%s: %+v, want %s saying %q", id, b.ear.results[id], row.want, row.says)
			}
			if got := b.see.of(id); !slices.Equal(got, []string{"received", "ended"}) {
				t.Errorf("%s: the observer heard %v", id, got)
			}
		}
		if got := b.d.Inflight(); len(got) != 0 {
			t.Errorf("in flight: %v", got)
		}
		b.finish()
	})
}

func TestAboveMaxInflightWorkWaitsInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		now, most := 0, 0
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			order = append(order, c.In.InstructionID) // one at a time reaches this, see below
			now++
			most = max(most, now)
			time.Sleep(time.Second)
			now--
			return exitZero(ctx, c)
		}})
		b.d.SetMaxInflight(1)
		var want []string
		for i := range 20 {
			id := fmt.Sprint("i", i)
			want = append(want, id)
			b.d.Instruct(ask(id, wire.KindExec, aCommand))
		}
		if got := b.d.Inflight(); !slices.Equal(got, want) {
			t.Errorf("Inflight() = %v, want %v", got, want)
		}
		time.Sleep(20*time.Second + time.Millisecond)
		synctest.Wait()
		if !slices.Equal(order, want) || most != 1 {
			t.Errorf("ran in the order %v, %d at once; want %v, one at once", order, most, want)
		}
		b.finish()
	})
}

func TestRaisingMaxInflightStartsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			running.Add(1)
			defer running.Add(-1)
			return untilStopped(ctx, c)
		}})
		for i := range 40 {
			b.d.Instruct(ask(fmt.Sprint(i), wire.KindExec, aCommand))
		}
		for _, step := range []struct{ set, want int }{{0, defaultInflight}, {9, 9}, {2, 9}, {30, 30}, {100000, 40}} {
			if step.set != 0 {
				b.d.SetMaxInflight(step.set)
			}
			synctest.Wait()
			if got := int(running.Load()); got != step.want {
				t.Errorf("after SetMaxInflight(%d): %d run, want %d", step.set, got, step.want)
			}
		}
		b.finish()
	})
}

func TestACancelFindsEveryStateAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{
			wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
				switch c.In.Cwd {
				case "/preparing":
					<-ctx.Done()
					return c.Stopped(ctx)
				case "/finishing": // is done in spite of the cancel
					_ = c.Begin(ctx)
					<-ctx.Done()
					return wire.ExecOutcome{ExitCode: 5}
				}
				return untilStopped(ctx, c)
			},
			wire.KindReadTextFile: func(ctx context.Context, c *Call) wire.Outcome {
				<-ctx.Done()
				return c.Stopped(ctx)
			},
			wire.KindWriteFile: func(ctx context.Context, c *Call) wire.Outcome {
				_, err := c.Content.Next(ctx)
				if err == nil {
					t.Error("content from nowhere")
				}
				return c.Stopped(ctx)
			},
		})
		b.d.SetMaxInflight(6)
		at := func(id, cwd string) *wire.Instruction {
			in := ask(id, wire.KindExec, aCommand)
			in.Cwd = cwd
			return in
		}
		b.d.Instruct(at("running", ""))
		b.d.Instruct(at("preparing", "/preparing"))
		b.d.Instruct(at("finishing", "/finishing"))
		b.d.Instruct(ask("reading", wire.KindReadTextFile, aPath))
		b.d.Instruct(ask("receiving", wire.KindWriteFile, aWrite))
		b.d.Instruct(at("hold", ""))
		b.d.Instruct(at("waiting", ""))
		b.d.Instruct(ask("waiting write", wire.KindWriteFile, aWrite))
		want := map[string]string{
			"running":       "cancelled killed",
			"preparing":     "cancelled not_started",
			"finishing":     "exec 5",
			"reading":       "cancelled killed",
			"receiving":     "cancelled not_started",
			"waiting":       "cancelled not_started",
			"waiting write": "cancelled not_started",
		}
		time.Sleep(time.Second)
		start := time.Now()
		for _, id := range []string{"waiting", "waiting write", "running", "preparing", "finishing", "reading", "receiving", "nobody"} {
			b.d.Cancel(id)
			b.d.Cancel(id)
		}
		for id, state := range want {
			if got := describe(b.outcome(id)); got != state {
				t.Errorf("%s: %s, want %s", id, got, state)
			}
			b.d.Cancel(id) // answered
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the answers took %v", took)
		}
		b.unanswered("hold", "nobody")
		if got := b.d.Inflight(); !slices.Equal(got, []string{"hold"}) {
			t.Errorf("Inflight() = %v, want only what was not cancelled", got)
		}
		b.finish()
	})
}

func TestTimeoutCountsFromReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: untilStopped})
		b.d.SetMaxInflight(1)
		b.d.Instruct(askWithin("first", wire.KindExec, aCommand, 3*time.Second))
		b.d.Instruct(askWithin("waits", wire.KindExec, aCommand, 2*time.Second))
		b.d.Instruct(askWithin("late", wire.KindExec, aCommand, 4*time.Second))
		huge := ask("huge", wire.KindExec, aCommand)
		huge.TimeoutMs = wire.MaxSafeInteger
		b.d.Instruct(huge)

		time.Sleep(2*time.Second - time.Nanosecond)
		b.unanswered("first", "waits", "late")
		time.Sleep(time.Nanosecond)
		if f := b.outcome("waits").(wire.Failure); f.Code != wire.CodeTimeout || !strings.Contains(f.Message, "nothing was done") {
			t.Errorf("waits: %+v", f)
		}
		if got := b.see.of("waits"); slices.Contains(got, "started") {
			t.Errorf("waits started: %v", got)
		}
		time.Sleep(time.Second)
		if f := b.outcome("first").(wire.Failure); f.Code != wire.CodeTimeout || !strings.Contains(f.Message, "3000 ms") {
			t.Errorf("first: %+v", f)
		}
		time.Sleep(time.Second - time.Nanosecond)
		b.unanswered("late") // it runs by now, and waited for three of its four seconds
		time.Sleep(time.Nanosecond)
		if got := describe(b.outcome("late")); got != "timeout" {
			t.Errorf("late: %s", got)
		}
		time.Sleep(365 * 24 * time.Hour)
		b.unanswered("huge")
		b.finish()
	})
}

func TestATimeoutOfNothingOrLessHasRunOutAtOnce(t *testing.T) {
	// The last ones make a long time of a clock's own unit if they are multiplied unseen.
	for _, ms := range []int64{0, -1, -1000, -9_223_372_036_855, -18_446_744_073_709, -wire.MaxSafeInteger} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, handlers{wire.KindExec: untilStopped})
			in := ask("late", wire.KindExec, aCommand)
			in.TimeoutMs = ms
			began := time.Now()
			b.d.Instruct(in)
			if got := describe(b.outcome("late")); got != "timeout" {
				t.Errorf("timeoutMs %d: %s", ms, got)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("timeoutMs %d: after %v", ms, took)
			}
			b.finish()
		})
	}
}

// Where an effect may have been, nothing milder than outcome_unknown will do (§3.3).
func TestAPanicIsAnAnswerAndNoCrash(t *testing.T) {
	breaks := func(begin bool, how func() wire.Outcome) Handler {
		return func(ctx context.Context, c *Call) wire.Outcome {
			if begin {
				_ = c.Begin(ctx)
			}
			return how()
		}
	}
	panics := func() wire.Outcome { panic("oops") }
	says := func(o wire.Outcome) func() wire.Outcome { return func() wire.Outcome { return o } }
	for _, row := range []struct {
		name string
		kind wire.Kind
		args string
		h    Handler
		want wire.ErrorCode
	}{
		{"a panic before anything began", wire.KindExec, aCommand, breaks(false, panics), wire.CodeUnknown},
		{"a panic in a command's middle", wire.KindExec, aCommand, breaks(true, panics), wire.CodeOutcomeUnknown},
		{"a panic in a look", wire.KindExists, aPath, breaks(false, panics), wire.CodeUnknown},
		{"a look's answer of the wrong kind", wire.KindExists, aPath, breaks(false, says(wire.VoidOutcome{})), wire.CodeUnknown},
		{"no answer, nothing begun", wire.KindRemove, aPath, breaks(false, says(nil)), wire.CodeUnknown},
		{"no answer after a removal began", wire.KindRemove, aPath, breaks(true, says(nil)), wire.CodeOutcomeUnknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, handlers{row.kind: row.h})
				b.d.Instruct(ask("a", row.kind, row.args))
				if f, ok := b.outcome("a").(wire.Failure); !ok || f.Code != row.want || strings.Contains(f.Message, "oops") {
					t.Errorf("%+v, want %s, without the panic's text", f, row.want)
				}
				b.finish()
			})
		})
	}
}

func TestAFloodIsBoundedAndAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: untilStopped})
		const flood = mostWaiting + defaultInflight + 100
		for i := range flood {
			b.d.Instruct(ask(fmt.Sprint(i), wire.KindExec, aCommand))
		}
		if n := len(b.d.Inflight()); n != mostWaiting+defaultInflight {
			t.Errorf("%d are held, want %d", n, mostWaiting+defaultInflight)
		}
		for i := flood - 100; i < flood; i++ {
			if f := b.outcome(fmt.Sprint(i)).(wire.Failure); f.Code != wire.CodeTargetUnavailable {
				t.Fatalf("%d: %+v", i, f)
			}
		}
		b.finish()
	})
}

func TestWaitingBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: untilStopped})
		b.d.SetMaxInflight(1)
		large := map[string]string{"LARGE": strings.Repeat("x", 1<<20-100)}
		refused := 0
		for i := range 40 {
			id := fmt.Sprint(i)
			in := ask(id, wire.KindExec, aCommand)
			in.ShellEnv = large
			b.d.Instruct(in)
			b.listen()
			refused += len(b.ear.results[id])
		}
		if refused != 40-1-32 {
			t.Errorf("%d of 40 MiB refused, want 7: one runs, 32 wait", refused)
		}
		b.finish()
	})
}

func TestTheObserverHearsTheWholeStoryInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			time.Sleep(time.Second)
			_ = c.Begin(ctx)
			_ = c.Out.Append(ctx, wire.ChunkStdout, []byte("12345"))
			time.Sleep(time.Second)
			c.EndedProcesses(3)
			return wire.ExecOutcome{ExitCode: 9}
		}})
		start := time.Now()
		b.d.Instruct(ask("a", wire.KindExec, aCommand))
		time.Sleep(3 * time.Second)
		b.outcome("a")
		if got := b.see.of("a"); !slices.Equal(got, []string{"received", "started", "ended"}) {
			t.Errorf("events %v", got)
		}
		want := Report{Started: start.Add(time.Second), Ended: start.Add(2 * time.Second), BytesOut: 5, Outcome: wire.ExecOutcome{ExitCode: 9}, ProcessesEnded: 3}
		if got := b.see.report("a"); !reflect.DeepEqual(got, want) {
			t.Errorf("report %+v, want %+v", got, want)
		}
		b.finish()
	})
}

func TestOneTerminalWhateverRaces(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			if err := races(t, seed); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

// races lets ends, cancels, timeouts, repetitions and the fence meet at the same
// moments, as seed says, and returns what of the promises was broken: each
// instruction starts at most once and has one terminal, for fenced work none, and
// the terminal agrees with whether it began.
func races(t *testing.T, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	var runs, begins [40]atomic.Int32
	b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
		i, _ := strconv.Atoi(c.In.InstructionID)
		runs[i].Add(1)
		if c.Begin(ctx) != nil {
			return c.Stopped(ctx)
		}
		begins[i].Add(1)
		select {
		case <-time.After(time.Duration(c.In.IssuedSeq) * time.Millisecond):
			return wire.ExecOutcome{}
		case <-ctx.Done():
			return c.Stopped(ctx)
		}
	}})
	defer b.finish()
	b.d.SetMaxInflight(1 + r.IntN(8))
	fenced := map[string]bool{}
	var asked []*wire.Instruction
	for i := range runs {
		in := askWithin(strconv.Itoa(i), wire.KindExec, aCommand, time.Duration(1+r.IntN(12))*time.Millisecond)
		in.IssuedSeq = r.Int64N(12)
		b.d.Instruct(in)
		asked = append(asked, in)
		for range r.IntN(4) {
			id := strconv.Itoa(r.IntN(i + 1))
			switch r.IntN(8) {
			case 0, 1, 2:
				b.d.Cancel(id)
			case 3:
				time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
			case 4:
				b.d.Instruct(asked[r.IntN(len(asked))])
			case 5:
				b.listen()
				if len(b.ear.results[id]) == 0 {
					fenced[id] = true
					b.d.End(t.Context(), []string{id})
				}
			}
		}
	}
	time.Sleep(time.Second)
	b.listen()
	var broken []error
	for i := range runs {
		id := strconv.Itoa(i)
		want := 1
		if fenced[id] {
			want = 0
		}
		got := b.ear.results[id]
		if len(got) != want {
			broken = append(broken, fmt.Errorf("%s: results %v, want %d", id, got, want))
		}
		if n := runs[i].Load(); n > 1 {
			broken = append(broken, fmt.Errorf("%s: started %d times", id, n))
		}
		for _, o := range got {
			began := begins[i].Load() > 0
			if d := describe(o); d == "exec 0" && !began || d == "cancelled killed" && !began || d == "cancelled not_started" && began {
				broken = append(broken, fmt.Errorf("%s: %s, began: %v", id, d, began))
			}
		}
	}
	return errors.Join(broken...)
}
