package instructions

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

func TestFencedWorkIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			_ = c.Begin(ctx)
			_ = c.Out.Append(ctx, wire.ChunkStdout, []byte("before"))
			<-ctx.Done()
			if err := c.Out.Append(context.WithoutCancel(ctx), wire.ChunkStdout, []byte("after")); err == nil && c.In.InstructionID != "kept" {
				t.Error("fenced work still speaks")
			}
			time.Sleep(time.Second) // it takes a while to die
			ended++
			return c.Stopped(ctx)
		}})
		b.d.SetMaxInflight(2)
		for _, id := range []string{"gone", "kept", "waits"} {
			b.d.Instruct(ask(id, wire.KindExec, aCommand))
		}
		synctest.Wait()
		b.o.Suspend()
		start := time.Now()
		if stuck := b.d.End(t.Context(), []string{"gone", "waits", "unheard of"}); len(stuck) != 0 || ended != 1 {
			t.Errorf("End returned %v with %d ended; want nothing stuck, and only after the work is over", stuck, ended)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("End took %v", took)
		}
		b.o.Resume("2", []string{"kept"}, map[string]int64{"kept": -1})
		b.unanswered("gone", "waits", "kept")
		if got := b.ear.text("gone", wire.ChunkStdout); got != "" {
			t.Errorf("said of fenced work: %q", got)
		}
		if r := b.see.report("gone"); !r.Fenced {
			t.Errorf("report %+v, want fenced", r)
		}
		b.d.Instruct(ask("gone", wire.KindExec, aCommand))
		b.unanswered("gone")
		b.d.Cancel("kept")
		time.Sleep(time.Second)
		if got := describe(b.outcome("kept")); got != "cancelled killed" {
			t.Errorf("kept: %s", got)
		}
		b.finish()
	})
}

func TestEndReturnsWhatIsNotKnownToBeDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			_ = c.Begin(ctx)
			<-ctx.Done()
			if c.In.InstructionID == "survivor" {
				return wire.Failf(wire.CodeOutcomeUnknown, "pid 7 is alive")
			}
			<-release
			return c.Stopped(ctx)
		}})
		b.d.Instruct(ask("stuck", wire.KindExec, aCommand))
		b.d.Instruct(ask("survivor", wire.KindExec, aCommand))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if got := b.d.End(ctx, []string{"stuck", "survivor"}); !slices.Equal(got, []string{"stuck", "survivor"}) {
			t.Errorf("End returned %v", got)
		}
		close(release)
		b.unanswered("stuck", "survivor")
		b.finish()
	})
}

func TestAnswersForTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: untilStopped})
		b.d.Instruct(ask("live", wire.KindExec, aCommand))
		if !b.d.Seen("live") || b.d.Seen("other") {
			t.Error("Seen does not tell apart what came by from what did not")
		}
		b.d.Answer("live", wire.Failf(wire.CodeUnknown, "must not be said"))
		b.d.Answer("other", wire.Failf(wire.CodeTargetUnavailable, "never seen"))
		if got := describe(b.outcome("other")); got != "target_unavailable" || !b.d.Seen("other") {
			t.Errorf("other: %s", got)
		}
		b.unanswered("live")
		b.finish()
	})
}

// slowEar is an Observer that takes its time over each end.
type slowEar struct{ recorder }

func (s *slowEar) Ended(w Work, r Report) {
	time.Sleep(time.Second)
	s.recorder.Ended(w, r)
}

// The record of what ended is closed right after the dispatcher.
func TestCloseReturnsOnlyOnceEveryEndWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ear := &slowEar{}
		d := New(Config{Outbox: outbox.New(outbox.Config{}), Handlers: handlers{wire.KindExec: exitZero}, Observe: ear})
		d.Instruct(ask("x", wire.KindExec, aCommand))
		synctest.Wait() // it has ended, and that is being told
		if err := d.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if told := ear.of("x"); !slices.Contains(told, "ended") {
			t.Errorf("told %v", told)
		}
		time.Sleep(time.Second)
	})
}

// While what was silenced is still dying, a server may ask for it again.
func TestTheFenceMayAnswerForWhatItSilenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			_ = c.Begin(ctx)
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			return c.Stopped(ctx)
		}})
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if stuck := b.d.End(gone, []string{"x"}); !slices.Equal(stuck, []string{"x"}) {
			t.Fatalf("End returned %v", stuck)
		}
		b.d.Answer("x", wire.Failf(wire.CodeOutcomeUnknown, "given up"))
		if got := describe(b.outcome("x")); got != "outcome_unknown" {
			t.Errorf("x: %s", got)
		}
		b.finish()
		b.outcome("x") // and that was all
	})
}

func TestAfterGoodbyeNothingNewStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: func(ctx context.Context, c *Call) wire.Outcome {
			_ = c.Begin(ctx)
			select {
			case <-ctx.Done():
				return c.Stopped(ctx)
			case <-time.After(5 * time.Second):
				return wire.ExecOutcome{}
			}
		}})
		b.d.SetMaxInflight(1)
		b.d.Instruct(ask("runs", wire.KindExec, aCommand))
		b.d.Instruct(ask("waits", wire.KindExec, aCommand))
		synctest.Wait()
		b.d.Leave()
		b.d.Instruct(ask("late", wire.KindExec, aCommand))
		for _, id := range []string{"waits", "late"} {
			if got := describe(b.outcome(id)); got != "target_unavailable" {
				t.Errorf("%s: %s", id, got)
			}
		}
		b.unanswered("runs")
		if err := b.d.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := describe(b.outcome("runs")); got != "exec 0" {
			t.Errorf("runs: %s, want its ordinary end", got)
		}
		b.finish()
	})
}

func TestAnAbortedDrainSaysAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: untilStopped})
		b.d.SetMaxInflight(1)
		b.d.Instruct(ask("runs", wire.KindExec, aCommand))
		b.d.Instruct(ask("waits", wire.KindExec, aCommand))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.d.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait returned %v while work runs", err)
		}
		if err := b.d.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]string{"runs": "aborted", "waits": "target_unavailable"} {
			if got := describe(b.outcome(id)); got != want {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
		b.finish()
	})
}
