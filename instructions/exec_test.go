package instructions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/wire"
)

// withFake gives a bench whose commands are the Go function shell.
func withFake(t *testing.T, shell func(*proc) int) (*bench, *fakeControl) {
	f := &fakeControl{shell: shell}
	h := Exec(ExecConfig{Control: f, Shell: "/bin/sh", Workspace: "/work space", Env: []string{"PATH=/bin", "SEMA_CREDENTIAL=hush"},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	return newBench(t, handlers{wire.KindExec: h, wire.KindExecStream: h}), f
}

// ran checks the frames of an instruction that succeeded.
func (b *bench) ran(id string, code int64, stdout string) {
	b.t.Helper()
	if got := describe(b.outcome(id)); got != fmt.Sprintf("exec %d", code) {
		b.t.Errorf("%s: %+v, want exit %d", id, b.ear.results[id], code)
	}
	if got := b.ear.text(id, wire.ChunkStdout); got != stdout {
		b.t.Errorf("%s: stdout %q, want %q", id, got, stdout)
	}
	if got := b.ear.exits(id); !slices.Equal(got, []int64{code}) {
		b.t.Errorf("%s: exit chunks %v, want one, of %d", id, got, code)
	}
}

// failed checks the frames of an instruction that did not.
func (b *bench) failed(id, want, stdout string) {
	b.t.Helper()
	if got := describe(b.outcome(id)); got != want {
		b.t.Errorf("%s: %+v, want %s", id, b.ear.results[id], want)
	}
	if got := b.ear.text(id, wire.ChunkStdout); got != stdout {
		b.t.Errorf("%s: stdout %q, want %q", id, got, stdout)
	}
	if got := b.ear.exits(id); len(got) != 0 {
		b.t.Errorf("%s: exit chunks %v, want none", id, got)
	}
}

func TestACommandRunsAndSaysAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := withFake(t, func(p *proc) int {
			p.print("out")
			p.err.write([]byte("err"), p.kill)
			return 7
		})
		in := ask("x", wire.KindExecStream, `{"command":"say it"}`)
		in.ShellEnv = map[string]string{"PATH": "/opt", "B": "2", "A": "1"}
		b.d.Instruct(in)
		b.ran("x", 7, "out")
		if got := b.ear.text("x", wire.ChunkStderr); got != "err" {
			t.Errorf("stderr %q", got)
		}
		want := process.Spec{InstructionID: "x", Shell: "/bin/sh", Command: "say it", Dir: "/work space", Env: []string{"A=1", "B=2", "PATH=/opt"}}
		if got := f.specs[0]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("spec %+v, want %+v", got, want)
		}
		if !f.last.released.Load() {
			t.Error("the command was not released")
		}
		b.finish()
	})
}

func TestACommandThatSaysNothingHasAnExitChunk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := withFake(t, func(*proc) int { return 0 })
		start := time.Now()
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		b.ran("x", 0, "")
		if c := b.ear.chunks["x"]; len(c) != 1 || c[0].StreamSeq != 0 {
			t.Errorf("chunks %v", c)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v of waiting", took)
		}
		b.finish()
	})
}

func TestWhatTheShellLeftLingersASecond(t *testing.T) {
	table := []struct {
		name   string
		shell  func(*proc) int
		stdout string
		after  time.Duration // of the answer, at least; 50 ms more at most
		ended  int
	}{
		{"a sleeper is ended", func(p *proc) int {
			p.fork(func(p *proc) { p.sleep(300 * time.Second) })
			p.print("hi")
			return 0
		}, "hi", linger, 1},
		{"a sleeper without pipes is ended", func(p *proc) int {
			p.fork(func(p *proc) {
				p.closePipes()
				p.sleep(300 * time.Second)
			})
			return 0
		}, "", linger, 1},
		{"last words are heard", func(p *proc) int {
			p.fork(func(p *proc) {
				p.sleep(500 * time.Millisecond)
				p.print(" tail")
			})
			p.print("head")
			return 0
		}, "head tail", 500 * time.Millisecond, 0},
		{"words on TERM are heard", func(p *proc) int {
			p.fork(func(p *proc) {
				<-p.term
				p.sleep(0)
				p.print("ouch")
			})
			return 0
		}, "ouch", linger, 1},
		{"who ignores TERM is killed", func(p *proc) int {
			p.fork(func(p *proc) { <-p.kill })
			return 0
		}, "", linger + grace, 1},
		{"who holds a pipe out of reach is not waited for", func(p *proc) int {
			p.out.hold(1)
			p.print("said")
			return 0
		}, "said", linger, 0},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := withFake(t, row.shell)
				b.d.Instruct(ask("x", wire.KindExec, aCommand))
				time.Sleep(row.after - time.Millisecond)
				b.unanswered("x")
				time.Sleep(50 * time.Millisecond)
				b.ran("x", 0, row.stdout)
				if got := b.see.report("x").ProcessesEnded; got != row.ended {
					t.Errorf("%d processes ended, want %d", got, row.ended)
				}
				b.finish()
			})
		})
	}
}

func TestTheLingerStandsStillWhileNobodyReads(t *testing.T) {
	leave := func(p *proc) int {
		p.fork(func(p *proc) {
			p.print(strings.Repeat("x", 3<<20)) // three times what a lane holds
			p.sleep(300 * time.Second)
		})
		return 0
	}
	t.Run("back-pressure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := withFake(t, leave)
			b.d.Instruct(ask("x", wire.KindExec, aCommand))
			time.Sleep(time.Minute) // nobody hears, so nothing is acknowledged
			synctest.Wait()
			if got := b.d.Inflight(); len(got) != 1 {
				t.Fatal("it ended while its words could not be taken")
			}
			b.listen()
			time.Sleep(linger + 50*time.Millisecond)
			b.ran("x", 0, strings.Repeat("x", 3<<20))
			b.finish()
		})
	})
	t.Run("disconnect", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := withFake(t, func(p *proc) int {
				p.fork(func(p *proc) { p.sleep(300 * time.Second) })
				return 0
			})
			b.o.Suspend()
			b.d.Instruct(ask("x", wire.KindExec, aCommand))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := b.d.Inflight(); len(got) != 1 {
				t.Fatal("it ended while nobody could hear it")
			}
			b.o.Resume("2", []string{"x"}, nil)
			time.Sleep(linger + 50*time.Millisecond)
			b.ran("x", 0, "")
			b.finish()
		})
	})
}

func TestCancelAndTimeoutEndTheWholeCommand(t *testing.T) {
	shells := []struct {
		name   string
		shell  func(*proc) int
		after  time.Duration
		stdout string
	}{
		{"obedient", func(p *proc) int { p.sleep(time.Hour); return 143 }, 0, ""},
		{"with last words", func(p *proc) int {
			p.print("hello ")
			p.sleep(time.Hour)
			p.print("bye")
			return 7
		}, 0, "hello bye"},
		{"ignoring TERM", func(p *proc) int { <-p.kill; return 137 }, grace, ""},
		{"with children", func(p *proc) int {
			p.fork(func(p *proc) { <-p.kill })
			p.sleep(time.Hour)
			return 143
		}, grace, ""},
	}
	for _, row := range shells {
		for _, by := range []string{"cancel", "timeout", "abort"} {
			t.Run(row.name+", "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b, f := withFake(t, row.shell)
					b.d.Instruct(askWithin("x", wire.KindExec, aCommand, 10*time.Second))
					want := map[string]string{"cancel": "cancelled killed", "timeout": "timeout", "abort": "aborted"}[by]
					switch by {
					case "cancel":
						time.Sleep(time.Second)
						b.d.Cancel("x")
						b.d.Cancel("x")
					case "timeout":
						time.Sleep(10 * time.Second)
					case "abort":
						time.Sleep(time.Second)
						go b.d.Abort(t.Context())
					}
					if row.after > 0 {
						time.Sleep(row.after - time.Nanosecond)
						b.unanswered("x")
						time.Sleep(time.Nanosecond)
					}
					b.failed("x", want, row.stdout)
					if !closed(f.last.gone) {
						t.Error("answered before it was dead")
					}
					b.finish()
				})
			})
		}
	}
}

func TestWhatIsNotKnownToBeDeadIsNotCalledDead(t *testing.T) {
	for _, by := range []string{"cancel", "timeout"} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			b, f := withFake(t, func(p *proc) int { <-release; return 0 })
			f.survivors = []int{4711, 4712}
			b.d.Instruct(askWithin("x", wire.KindExec, aCommand, time.Minute))
			synctest.Wait()
			if by == "cancel" {
				b.d.Cancel("x")
			} else {
				time.Sleep(time.Minute)
			}
			time.Sleep(patienceWithCommands - time.Millisecond)
			f1, ok := b.outcome("x").(wire.Failure)
			if !ok || f1.Code != wire.CodeOutcomeUnknown || !strings.Contains(f1.Message, "4711") || !strings.Contains(f1.Message, "4712") {
				t.Errorf("%s: %+v, want outcome_unknown naming the pids within 8 s", by, f1)
			}
			close(release)
			b.finish()
		})
	}
}

func TestAnEndedShellStandsAgainstALateCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := withFake(t, func(p *proc) int {
			p.print("done")
			p.fork(func(p *proc) { p.sleep(time.Hour) })
			return 3
		})
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		time.Sleep(linger / 2)
		b.d.Cancel("x")
		b.ran("x", 3, "done")
		if !closed(f.last.gone) {
			t.Error("what it left behind is alive")
		}
		b.finish()
	})
}

func TestACancelIsAnsweredAtOnceUnderBackPressure(t *testing.T) {
	for _, shell := range []func(*proc) int{
		func(p *proc) int { // prints without end
			for !closed(p.term) {
				p.out.write(make([]byte, 1<<16), p.term)
			}
			return 143
		},
		func(p *proc) int { // has ended, but its words are not out
			p.print(strings.Repeat("x", 1<<20+1<<17))
			return 0
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := withFake(t, shell)
			b.d.Instruct(ask("x", wire.KindExec, aCommand))
			time.Sleep(time.Minute)
			b.d.Cancel("x")
			time.Sleep(lastWords)
			synctest.Wait()
			if got := b.d.Inflight(); len(got) != 0 {
				t.Error("the cancel is not answered")
			}
			b.listen()
			if got := describe(b.outcome("x")); got != "cancelled killed" {
				t.Errorf("%s", got)
			}
			if got := b.ear.exits("x"); len(got) != 0 {
				t.Errorf("exit chunks %v of a stream that was cut", got)
			}
			b.finish()
		})
	}
}

func TestAFencedCommandIsEndedThoughNobodyTakesItsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := withFake(t, func(p *proc) int {
			for !closed(p.term) {
				p.out.write(make([]byte, 1<<16), p.term)
			}
			return 143
		})
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		synctest.Wait()
		b.o.Suspend()
		if stuck := b.d.End(t.Context(), []string{"x"}); len(stuck) != 0 || !closed(f.last.gone) {
			t.Errorf("stuck %v, gone %v", stuck, closed(f.last.gone))
		}
		b.o.Resume("2", nil, nil)
		b.unanswered("x")
		b.finish()
	})
}

// A command whose shell ended well has an exit code to tell, and may be alive all the
// same. The fence asks for nothing but the second.
func TestTheFenceIsToldOfWhatOutlivesAShellThatEndedWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b, f := withFake(t, func(p *proc) int {
			p.fork(func(*proc) { <-release }) // KILL is pending on it
			return 0
		})
		f.survivors = []int{4711}
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		synctest.Wait()
		if stuck := b.d.End(t.Context(), []string{"x"}); !slices.Equal(stuck, []string{"x"}) {
			t.Errorf("End returned %v, want what is alive", stuck)
		}
		close(release)
		b.finish()
	})
}

func TestALostSupervisorIsNotAnExitCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := withFake(t, func(p *proc) int {
			p.lost = process.ErrLost
			return -1
		})
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		b.failed("x", "outcome_unknown", "")
		b.finish()
	})
}

func TestWhatKeepsACommandFromStarting(t *testing.T) {
	long := map[string]string{"A": "1", "HUGE": strings.Repeat("x", 1000)}
	table := []struct {
		name string
		err  error
		in   func(*wire.Instruction)
		want wire.ErrorCode
		says string
	}{
		{"folder missing", &process.DirError{Dir: "/nowhere", Reason: process.DirNotFound, Err: syscall.ENOENT}, nil, wire.CodeNotFound, "/nowhere"},
		{"folder is a file", &process.DirError{Dir: "/f", Reason: process.DirNotDirectory, Err: syscall.ENOTDIR}, nil, wire.CodeNotDirectory, "/f"},
		{"folder closed", &process.DirError{Dir: "/root", Reason: process.DirPermission, Err: syscall.EACCES}, nil, wire.CodePermissionDenied, "/root"},
		{"no shell", fmt.Errorf("/bin/sh: %w", process.ErrShellUnavailable), nil, wire.CodeShellUnavailable, "/bin/sh"},
		{"too large", &process.SpawnError{Variable: "HUGE", Err: syscall.E2BIG}, nil, wire.CodeSpawnError, "HUGE"},
		{"too large in all", &process.SpawnError{Err: syscall.E2BIG}, func(in *wire.Instruction) { in.ShellEnv = long }, wire.CodeSpawnError, "HUGE"},
		{"no processes left", &process.SpawnError{Err: syscall.EAGAIN}, nil, wire.CodeSpawnError, "temporarily"},
		{"lost", process.ErrLost, nil, wire.CodeOutcomeUnknown, "not known"},
		{"survivors", &process.SurvivorsError{PIDs: []int{12}}, nil, wire.CodeOutcomeUnknown, "12"},
		{"closed", process.ErrClosed, nil, wire.CodeTargetUnavailable, "never started"},
		{"not recorded", errors.New("ledger: disk full"), nil, wire.CodeSpawnError, "disk full"},
		{"name with =", nil, func(in *wire.Instruction) { in.ShellEnv = map[string]string{"A=B": "secret value"} }, wire.CodeInvalid, "A=B"},
		{"no name", nil, func(in *wire.Instruction) { in.ShellEnv = map[string]string{"": "secret value"} }, wire.CodeInvalid, "no name"},
		{"NUL in name", nil, func(in *wire.Instruction) { in.ShellEnv = map[string]string{"A\x00": "secret value"} }, wire.CodeInvalid, `A\x00`},
		{"NUL in value", nil, func(in *wire.Instruction) { in.ShellEnv = map[string]string{"A": "secret value\x00"} }, wire.CodeInvalid, "of A"},
		{"relative folder", nil, func(in *wire.Instruction) { in.Cwd = "here" }, wire.CodeInvalid, "here"},
		{"NUL in folder", nil, func(in *wire.Instruction) { in.Cwd = "/a\x00" }, wire.CodeInvalid, "cwd"},
		{"NUL in command", nil, func(in *wire.Instruction) { in.Args = []byte(`{"command":"a\u0000b"}`) }, wire.CodeInvalid, "NUL"},
	}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := withFake(t, nil)
				f.startErr = row.err
				in := ask("x", wire.KindExec, aCommand)
				if row.in != nil {
					row.in(in)
				}
				b.d.Instruct(in)
				got, ok := b.outcome("x").(wire.Failure)
				if !ok || got.Code != row.want || !strings.Contains(got.Message, row.says) || strings.Contains(got.Message, "secret") {
					t.Errorf("%+v, want %s saying %q", b.ear.results["x"], row.want, row.says)
				}
				if n := len(b.ear.chunks["x"]); n != 0 {
					t.Errorf("%d chunks", n)
				}
				b.finish()
			})
		})
	}
}

func TestACancelWhileStartingFindsNothingStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := withFake(t, nil)
		f.hang = true
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		synctest.Wait()
		b.d.Cancel("x")
		b.failed("x", "cancelled not_started", "")
		b.finish()
	})
}

func TestASlowLineAppearsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := withFake(t, func(p *proc) int {
			for _, c := range "slow line\n" {
				p.print(string(c))
				time.Sleep(time.Millisecond)
			}
			p.sleep(time.Hour)
			return 0
		})
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		time.Sleep(50 * time.Millisecond)
		b.listen()
		if got := b.ear.text("x", wire.ChunkStdout); got != "slow line\n" {
			t.Errorf("after 50 ms: %q", got)
		}
		if n := len(b.ear.chunks["x"]); n > 3 {
			t.Errorf("in %d chunks", n)
		}
		b.finish()
	})
}

// Thousands of commands that end, are cancelled and run out of time at about the
// same moment: each has one answer, and it is a true one.
func TestCancelRacingTheExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := withFake(t, func(p *proc) int {
			if !p.sleep(time.Millisecond) {
				return 143
			}
			return 0
		})
		b.d.SetMaxInflight(8)
		for i := range 2000 {
			id := fmt.Sprint(i)
			b.d.Instruct(askWithin(id, wire.KindExec, aCommand, time.Millisecond*time.Duration(1+i%2)))
			if i%3 != 0 {
				time.Sleep(time.Millisecond - time.Duration(i%2))
				b.d.Cancel(id)
			} else {
				time.Sleep(time.Millisecond)
			}
			got := describe(b.outcome(id))
			exits := len(b.ear.exits(id))
			if ok := map[string]int{"exec 0": 1, "cancelled killed": 0, "timeout": 0}; ok[got] != exits || got != "exec 0" && got != "cancelled killed" && got != "timeout" {
				t.Fatalf("%s: %s with %d exit chunks", id, got, exits)
			}
		}
		b.finish()
	})
}

func TestTheCallerOfAHandlerMayBeATest(t *testing.T) {
	c := &Call{In: ask("x", wire.KindExec, aCommand)}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := c.Begin(ctx); err != nil {
		t.Error(err)
	}
	cancel(errCancel)
	if got := describe(c.Stopped(ctx)); c.Begin(ctx) == nil || got != "cancelled not_started" {
		t.Error(got)
	}
}
