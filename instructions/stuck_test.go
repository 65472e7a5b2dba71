package instructions

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// stuckAt is a handler whose call hangs in the kernel, before or after the step
// that takes effect, until release is closed.
func stuckAt(release <-chan struct{}, begun bool, late func(error)) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		if begun {
			if c.Begin(ctx) != nil {
				return c.Stopped(ctx)
			}
			<-release
			return wire.WriteOutcome{CanonicalPath: "/f"}
		}
		<-release
		err := c.Begin(ctx)
		late(err)
		return c.Stopped(ctx)
	}
}

func TestAReadStuckInTheKernelIsAnsweredAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, handlers{
			wire.KindReadTextFile: func(ctx context.Context, c *Call) wire.Outcome {
				<-release
				if err := c.Out.Append(context.Background(), wire.ChunkData, []byte("late")); err == nil {
					t.Error("a read that was answered for still speaks")
				}
				return wire.ReadOutcome{}
			},
			wire.KindExec: exitZero,
		})
		b.d.SetMaxInflight(1)
		b.d.Instruct(askWithin("r", wire.KindReadTextFile, aPath, 2*time.Second))
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		time.Sleep(2*time.Second + patienceWithReads)
		if f := b.outcome("r").(wire.Failure); f.Code != wire.CodeTimeout || !strings.Contains(f.Message, "nothing was changed") {
			t.Errorf("r: %+v", f)
		}
		if got := describe(b.outcome("x")); got != "exec 0" {
			t.Errorf("x: %s, want it not held up", got)
		}
		if b.d.Stuck() != 1 || !b.see.report("r").Stuck {
			t.Errorf("%d stuck, want 1", b.d.Stuck())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.d.Close(ctx) == nil {
			t.Error("Close did not notice the handler that has not returned")
		}
		close(release)
		b.finish()
		if b.d.Stuck() != 0 {
			t.Errorf("%d stuck after all came back", b.d.Stuck())
		}
		b.outcome("r")
	})
}

func TestAStuckWriteIsJudgedByItsAtomicStep(t *testing.T) {
	for _, row := range []struct {
		begun bool
		by    string
		after time.Duration // the end of its context
		want  string
	}{
		{false, "timeout", patienceWithReads, "timeout"},
		{false, "cancel", patienceWithReads, "cancelled not_started"},
		{true, "timeout", patienceWithWrites, "outcome_unknown"},
		{true, "cancel", patienceWithWrites, "outcome_unknown"},
	} {
		t.Run(fmt.Sprintf("begun %v, %s", row.begun, row.by), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var late error
				b := newBench(t, handlers{wire.KindWriteFile: stuckAt(release, row.begun, func(err error) { late = err })})
				b.d.Instruct(askWithin("w", wire.KindWriteFile, aWrite, 3*time.Second))
				if row.by == "cancel" {
					time.Sleep(time.Second)
					b.d.Cancel("w")
				} else {
					time.Sleep(3 * time.Second)
				}
				time.Sleep(row.after - time.Nanosecond)
				b.unanswered("w")
				time.Sleep(time.Nanosecond)
				if got := describe(b.outcome("w")); got != row.want {
					t.Errorf("%s, want %s", got, row.want)
				}
				close(release)
				b.finish()
				if !row.begun && late == nil {
					t.Error("what was reported as not done may still be done")
				}
				b.outcome("w")
			})
		})
	}
}

func TestAWritePastItsStepMayStillTellTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, handlers{wire.KindWriteFile: stuckAt(release, true, nil)})
		b.d.Instruct(ask("w", wire.KindWriteFile, aWrite))
		synctest.Wait()
		b.d.Cancel("w")
		time.Sleep(4 * time.Second)
		close(release)
		if got := describe(b.outcome("w")); got != "write" {
			t.Errorf("%s, want its ordinary outcome", got)
		}
		b.finish()
	})
}

// A call may come back just when it is being given up; counted as stuck for good, some
// of these a month would end in refusing every file instruction.
func TestACallThatComesBackAsItIsGivenUpIsNotStuck(t *testing.T) {
	for _, row := range []struct {
		kind     wire.Kind
		args     string
		patience time.Duration
	}{
		{wire.KindExists, aPath, patienceWithReads},
		{wire.KindWriteFile, aWrite, patienceWithWrites},
		{wire.KindExec, aCommand, patienceWithCommands},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, handlers{row.kind: func(ctx context.Context, c *Call) wire.Outcome {
				_ = c.Begin(ctx)
				<-ctx.Done()
				time.Sleep(row.patience)
				return c.Stopped(ctx)
			}})
			for i := range 300 {
				id := fmt.Sprint(i)
				b.d.Instruct(ask(id, row.kind, row.args))
				synctest.Wait()
				b.d.Cancel(id)
				time.Sleep(row.patience)
				b.outcome(id)
			}
			if n := b.d.Stuck(); n != 0 {
				t.Errorf("%s: %d calls that came back are counted as stuck", row.kind, n)
			}
			b.finish()
		})
	}
}

func TestStuckCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var started atomic.Int32
		b := newBench(t, handlers{
			wire.KindExists: func(ctx context.Context, c *Call) wire.Outcome {
				started.Add(1)
				<-release
				return c.Stopped(ctx)
			},
			wire.KindExec: exitZero,
		})
		b.d.SetMaxInflight(1)
		for i := range mostStuck + 10 {
			b.d.Instruct(askWithin(fmt.Sprint(i), wire.KindExists, aPath, time.Millisecond))
			time.Sleep(time.Second)
		}
		if started := started.Load(); started != mostStuck {
			t.Errorf("%d handlers are stuck, want at most %d", started, mostStuck)
		}
		if f := b.outcome(fmt.Sprint(mostStuck + 5)).(wire.Failure); f.Code != wire.CodeTargetUnavailable || !strings.Contains(f.Message, "stuck") {
			t.Errorf("%+v", f)
		}
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		if got := describe(b.outcome("x")); got != "exec 0" {
			t.Errorf("a command: %s", got)
		}
		close(release)
		b.finish()
	})
}
