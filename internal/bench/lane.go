package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// lane is the reference server and an executor, both in this process, with
// loopback between them.
type lane struct {
	server *refserver.Server
	device string
	x      *executor.Executor
	all    sync.WaitGroup
	err    error // of the executor, after all
}

func startLane(ctx context.Context) (*lane, error) {
	key, err := handshake.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &lane{server: refserver.New(refserver.Config{})}
	public := key.Public()
	l.device = l.server.AddDevice(refserver.DeviceRecord{Identity: "bench", PublicKey: ed25519.PublicKey(public[:]), OS: runtime.GOOS, WorkspaceRoot: "/"})
	l.all.Go(func() { _ = l.server.Serve(listener) }) // ends with Close
	address, err := enroll.ParseServer("http://"+listener.Addr().String(), false)
	if err != nil {
		return nil, errors.Join(err, l.stop())
	}
	network, err := executor.NewNetwork(address, &http.Transport{}, "bench")
	if err != nil {
		return nil, errors.Join(err, l.stop())
	}
	l.x = executor.New(executor.Config{DeviceID: l.device, Key: key, WorkspaceRoot: "/", Network: network, Env: os.Environ(),
		Platform: wire.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH, ExecutorVersion: "bench"}})
	l.all.Go(func() { l.err = l.x.Run(ctx) })
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := l.server.WaitActive(limit, l.device); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

func (l *lane) stop() error {
	if l.x != nil {
		l.x.StopNow()
	}
	err := l.server.Close()
	l.all.Wait()
	return errors.Join(err, l.err)
}

// run has a command run and returns how many bytes it printed.
func (l *lane) run(ctx context.Context, command string) (n int64, err error) {
	call, err := l.server.Dispatch(ctx, l.device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: command},
		TimeoutMs: time.Hour.Milliseconds(), AckDelivered: true,
		Deliver: func(_ wire.ChunkKind, data []byte) error { n += int64(len(data)); return nil }})
	if err != nil {
		return 0, err
	}
	how, err := call.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if how.Outcome != wire.Outcome(wire.ExecOutcome{}) {
		return 0, fmt.Errorf("the command ended with %+v", how.Outcome)
	}
	return n, nil
}

// throughLane compares commands that go the whole way with the same ones spawned
// bare, their output read from a pipe. Server, executor and command share this
// machine's processors, which they would not in life.
func throughLane(ctx context.Context, rounds int, size int64) error {
	l, err := startLane(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.stop() }()
	shell, err := instructions.FindShell("", os.Environ())
	if err != nil {
		return err
	}
	bareRun := func(command string) error { return exec.CommandContext(ctx, shell, "-c", command).Run() }

	bare, ours, err := compare(rounds,
		timed(func() error { return exec.CommandContext(ctx, shell, "-c", "echo hi").Run() }),
		timed(func() error { _, err := l.run(ctx, "echo hi"); return err }))
	if err != nil {
		return err
	}
	showTimes("echo through the lane", "bare spawn", bare, ours)

	noise, err := os.CreateTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.Remove(noise.Name())
	defer noise.Close()
	if err := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >%s", size, noise.Name())).Run(); err != nil {
		return err
	}
	for _, c := range []struct{ what, command string }{
		{"zeros", fmt.Sprintf("head -c %d /dev/zero", size)},
		{"noise", "cat " + noise.Name()},
	} {
		bare, ours, err := compare(bulkRounds,
			timed(func() error { return bareRun(c.command + " | cat >/dev/null") }),
			timed(func() error {
				n, err := l.run(ctx, c.command)
				if err == nil && n != size {
					err = fmt.Errorf("%d of %d bytes arrived", n, size)
				}
				return err
			}))
		if err != nil {
			return err
		}
		showRates("output through the lane, "+c.what, "command | cat", size, bare, ours)
	}
	if v := l.server.Violations(); len(v) > 0 {
		return fmt.Errorf("the server objects: %v", v)
	}
	return nil
}

// bulkRounds is how often much output is printed.
const bulkRounds = 3
