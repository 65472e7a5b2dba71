package executor_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/logind"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// idle is a process control that starts nothing.
type idle struct{ closed bool }

func (*idle) Start(context.Context, process.Spec) (process.Command, error) {
	return nil, process.ErrShellUnavailable
}
func (*idle) Level() string  { return process.LevelTree }
func (c *idle) Close() error { c.closed = true; return nil }

// pipes is a network in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type lane struct{ link.Dialer }

func (lane) Discover(context.Context) (string, error) { return wire.WSPath, nil }
func (l lane) Dial(ctx context.Context, path string) (link.Socket, error) {
	return l.DialPath(ctx, path)
}

func key(seed byte) (handshake.PrivateKey, ed25519.PublicKey) {
	s := bytes.Repeat([]byte{seed}, ed25519.SeedSize)
	k, err := handshake.KeyFromSeed(s)
	if err != nil {
		panic(err)
	}
	return k, ed25519.NewKeyFromSeed(s).Public().(ed25519.PublicKey)
}

// simulate runs an executor with made-up work against the reference server, in
// virtual time.
func simulate(t *testing.T, change func(*executor.Config), fn func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := refserver.New(refserver.Config{})
		n := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(n) }()
		private, public := key(1)
		device := server.AddDevice(refserver.DeviceRecord{Identity: "u", PublicKey: public, OS: "linux", WorkspaceRoot: "/w"})
		c := executor.Config{
			DeviceID: device, Key: private, WorkspaceRoot: "/w",
			Platform: wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "test"},
			Network: lane{link.Dialer{Server: &url.URL{Scheme: "http", Host: "sema.invalid"},
				Transport: &http.Transport{DialContext: n.dial}}},
			Control: func(process.Config) (process.Control, error) { return &idle{}, nil },
			Drain:   10 * time.Second,
			Random:  rand.NewChaCha8([32]byte{1}),
			Handlers: map[wire.Kind]instructions.Handler{
				// The command is how long to take.
				wire.KindExec: func(ctx context.Context, call *instructions.Call) wire.Outcome {
					took, err := time.ParseDuration(call.Args.(wire.ExecArgs).Command)
					if err != nil {
						return wire.Failf(wire.CodeInvalid, "%v", err)
					}
					if err := call.Begin(ctx); err != nil {
						return call.Stopped(ctx)
					}
					if err := call.Out.Append(ctx, wire.ChunkStdout, []byte("working\n")); err != nil {
						return call.Stopped(ctx)
					}
					select {
					case <-time.After(took):
						return wire.ExecOutcome{}
					case <-ctx.Done():
						return call.Stopped(ctx)
					}
				},
			},
		}
		if change != nil {
			change(&c)
		}
		x := executor.New(c)
		ended := make(chan error, 1)
		go func() { ended <- x.Run(t.Context()) }()
		fn(t, server, x, device, ended)
		for _, v := range server.Violations() {
			t.Errorf("the server objects: %v", v)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}

func activate(t testing.TB, s *refserver.Server, device string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitActive(ctx, device); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, s *refserver.Server, device, text string) *refserver.Call {
	t.Helper()
	call, err := s.Dispatch(t.Context(), device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: text}, TimeoutMs: 3_600_000})
	if err != nil {
		t.Fatal(err)
	}
	return call
}

func settle(t testing.TB, call *refserver.Call) refserver.Settlement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	how, err := call.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return how
}

func TestTheWholeExecutorRunsInVirtualTime(t *testing.T) {
	var kinds []wire.Kind
	simulate(t, nil, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
		activate(t, s, device)
		for _, k := range s.State(device).Supports {
			kinds = append(kinds, wire.Kind(k))
		}
		calls := []*refserver.Call{command(t, s, device, "10m"), command(t, s, device, "1s")}
		synctest.Wait()
		s.Drop(device)
		activate(t, s, device)
		for _, call := range calls {
			if how := settle(t, call); how.Outcome != wire.Outcome(wire.ExecOutcome{}) || how.Stream.Bytes != 8 {
				t.Errorf("settled %+v", how)
			}
		}
		x.Stop(wire.GoodbyeShutdown)
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if g := s.State(device).Goodbye; g != wire.GoodbyeShutdown {
			t.Errorf("goodbye %q", g)
		}
	})
	if want := []wire.Kind{wire.KindExec, wire.KindExecStream}; !slices.Equal(kinds, want) {
		t.Errorf("declared %v, want %v", kinds, want)
	}
}

func TestRunningWorkIsEndedWhenTheDrainIsOver(t *testing.T) {
	simulate(t, nil, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
		activate(t, s, device)
		call := command(t, s, device, "1h")
		synctest.Wait()
		x.Stop(wire.GoodbyeUserStop)
		how := settle(t, call)
		if f, ok := how.Outcome.(wire.Failure); !ok || f.Code != wire.CodeAborted {
			t.Errorf("settled %+v", how)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestStoppingNowEndsTheWorkAndSaysNothing(t *testing.T) {
	control := &idle{}
	simulate(t, func(c *executor.Config) {
		c.Control = func(process.Config) (process.Control, error) { return control, nil }
	}, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
		activate(t, s, device)
		command(t, s, device, "1h")
		synctest.Wait()
		x.Stop(wire.GoodbyeShutdown)
		time.Sleep(time.Second)
		began := time.Now()
		x.StopNow()
		x.StopNow()
		if err := <-ended; err != nil || time.Since(began) > time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(began))
		}
	})
	if !control.closed {
		t.Error("the process control was not closed")
	}
}

// recorder is a process control that has each command entered as one of macOS does:
// nothing of a command exists before it starts, so the executor stands for it.
type recorder struct {
	idle
	cfg process.Config
}

func (c *recorder) Start(_ context.Context, s process.Spec) (process.Command, error) {
	r := process.Recorded{InstructionID: s.InstructionID, BootID: "boot", PID: os.Getpid(), StartTime: 1}
	if err := c.cfg.Before(r); err != nil {
		return nil, err
	}
	c.cfg.After(r)
	return nil, process.ErrShellUnavailable
}

func TestACommandThatTheExecutorItselfStandsForIsEntered(t *testing.T) {
	simulate(t, func(c *executor.Config) {
		c.Dir, c.Handlers = t.TempDir(), nil
		c.Control = func(pc process.Config) (process.Control, error) { return &recorder{cfg: pc}, nil }
	}, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
		activate(t, s, device)
		how := settle(t, command(t, s, device, "true"))
		if f, ok := how.Outcome.(wire.Failure); !ok || f.Code != wire.CodeShellUnavailable {
			t.Errorf("settled %+v, want only what comes after the entry to fail", how.Outcome)
		}
		x.Stop(wire.GoodbyeShutdown)
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A read that hangs in the kernel is no command: nothing of it can be ended, or has to.
func TestACallStuckInTheKernelDoesNotFailAStop(t *testing.T) {
	for name, stop := range map[string]func(*executor.Executor){
		"in order": func(x *executor.Executor) { x.Stop(wire.GoodbyeShutdown) },
		"now":      (*executor.Executor).StopNow,
	} {
		t.Run(name, func(t *testing.T) {
			var thaw func()
			simulate(t, func(c *executor.Config) {
				release := make(chan struct{})
				thaw = func() { close(release) }
				c.Handlers[wire.KindExists] = func(ctx context.Context, call *instructions.Call) wire.Outcome {
					<-release
					return call.Stopped(ctx)
				}
			}, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
				activate(t, s, device)
				call, err := s.Dispatch(t.Context(), device, refserver.Dispatch{Kind: wire.KindExists, Args: wire.PathArgs{Path: "/mnt/dead"}, TimeoutMs: 1000})
				if err != nil {
					t.Fatal(err)
				}
				settle(t, call)
				began := time.Now()
				stop(x)
				if err := <-ended; err != nil || time.Since(began) > 15*time.Second {
					t.Errorf("Run returned %v after %v", err, time.Since(began))
				}
				thaw()
			})
		})
	}
}

// immortal is a process control whose commands cannot be ended.
type immortal struct{ idle }

func (*immortal) Close() error { return &process.SurvivorsError{PIDs: []int{4711}} }

// Nobody mends it by starting the executor again, which is what an error is for.
func TestACommandThatCannotBeEndedIsNamedAndDoesNotFailAStop(t *testing.T) {
	for name, stop := range map[string]func(*executor.Executor){
		"in order": func(x *executor.Executor) { x.Stop(wire.GoodbyeShutdown) },
		"now":      (*executor.Executor).StopNow,
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			simulate(t, func(c *executor.Config) {
				c.Control = func(process.Config) (process.Control, error) { return &immortal{}, nil }
				c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
			}, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
				activate(t, s, device)
				stop(x)
				if err := <-ended; err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
			if !strings.Contains(log.String(), "pid 4711") {
				t.Errorf("the log has %q", log.String())
			}
		})
	}
}

func TestTheServersLastWordIsTheExecutorsError(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(*refserver.Server, string)
		want error
	}{
		"revoked":    {(*refserver.Server).Revoke, link.ErrRevoked},
		"superseded": {(*refserver.Server).Supersede, link.ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, nil, func(t *testing.T, s *refserver.Server, _ *executor.Executor, device string, ended chan error) {
				activate(t, s, device)
				command(t, s, device, "1h")
				synctest.Wait()
				c.act(s, device)
				if err := <-ended; !errors.Is(err, c.want) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// announcer is a login manager that a test speaks for.
type announcer struct{ signals chan bool }

func (a announcer) Sleeping(context.Context) (<-chan bool, error) { return a.signals, nil }
func (a announcer) Inhibit(context.Context, string, string) (io.Closer, error) {
	return io.NopCloser(nil), nil
}
func (a announcer) Close() error { return nil }

func TestAnAnnouncedSleepIsAGoodbyeAndAWakeIsARedial(t *testing.T) {
	var a announcer
	simulate(t, func(c *executor.Config) {
		a.signals = make(chan bool)
		c.Suspend = func(context.Context) (logind.Manager, error) { return a, nil }
	}, func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
		activate(t, s, device)
		epoch := s.State(device).Epoch
		call := command(t, s, device, "1m")
		synctest.Wait()
		a.signals <- true
		time.Sleep(3 * time.Second)
		if st := s.State(device); st.Goodbye != wire.GoodbyeSleep || st.Connected {
			t.Errorf("asleep: goodbye %q, connected %t", st.Goodbye, st.Connected)
		}
		a.signals <- false
		activate(t, s, device)
		if got := s.State(device).Epoch; got != epoch {
			t.Errorf("epoch %s became %s", epoch, got)
		}
		if how := settle(t, call); how.Outcome != wire.Outcome(wire.ExecOutcome{}) {
			t.Errorf("settled %+v", how)
		}
		x.Stop(wire.GoodbyeShutdown)
		<-ended
	})
}

func TestEachRunHasAnEpochOfItsOwn(t *testing.T) {
	var epochs []string
	for seed := range byte(2) {
		simulate(t, func(c *executor.Config) { c.Random = rand.NewChaCha8([32]byte{seed}) },
			func(t *testing.T, s *refserver.Server, x *executor.Executor, device string, ended chan error) {
				activate(t, s, device)
				epochs = append(epochs, s.State(device).Epoch)
				x.Stop(wire.GoodbyeShutdown)
				<-ended
			})
	}
	if epochs[0] == epochs[1] {
		t.Errorf("both runs have %s", epochs[0])
	}
}
