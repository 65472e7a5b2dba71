package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

const (
	// benchPatience is how long the device may take to be active on loopback.
	benchPatience = 30 * time.Second
	// benchDrain is how long the trial's executor may take to leave.
	benchDrain = 5 * time.Second
)

// bench is a reference server on loopback with one enrolled device that is being
// served, all in this process, and a throw-away folder for its record.
type bench struct {
	server   *refserver.Server
	device   string
	root     string
	home     string
	executor *executor.Executor
	all      sync.WaitGroup // the server's and the executor's goroutine
	ended    chan struct{}  // closed when the executor has returned
	err      error          // what it returned; read after ended
}

// startBench brings everything up, and shows the frames on trace if there is one. An
// error leaves nothing behind.
func (a *app) startBench(ctx context.Context, root string, trace io.Writer) (_ *bench, err error) {
	b := &bench{ended: make(chan struct{})}
	if b.home, err = os.MkdirTemp("", "sema-try-"); err != nil {
		return nil, fmt.Errorf("make a throw-away folder: %w", err)
	}
	started := false
	defer func() {
		if err != nil {
			if !started {
				close(b.ended)
			}
			_ = b.stop()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port on loopback: %w", err)
	}
	config := refserver.Config{Now: a.now, Rand: a.random}
	if trace != nil {
		config.Trace = newFrameTrace(trace, a.now).show
	}
	b.server = refserver.New(config)
	b.all.Go(func() { _ = b.server.Serve(listener) }) // ends with Close

	record, key, err := a.enrollBench(ctx, b.home, "http://"+listener.Addr().String(), root)
	if err != nil {
		return nil, err
	}
	b.device, b.root = record.DeviceID, record.WorkspaceRoot
	network, err := executor.NewNetwork(record.Server, &http.Transport{}, userAgent())
	if err != nil {
		return nil, err
	}
	b.executor = executor.New(executor.Config{
		DeviceID:      record.DeviceID,
		Key:           key,
		WorkspaceRoot: record.WorkspaceRoot,
		Platform:      platform(),
		Excluded:      record.Excluded(),
		Network:       network,
		Server:        record.Server,
		Dir:           record.Dir(),
		Env:           cleanEnvironment(),
		Files:         &files.Config{},
		Drain:         benchDrain,
		Now:           a.now,
		Random:        a.random,
		Log:           a.benchLog(),
	})
	started = true
	b.all.Go(func() {
		defer close(b.ended)
		b.err = b.executor.Run(context.WithoutCancel(ctx))
	})
	limit, cancel := context.WithTimeout(ctx, benchPatience)
	defer cancel()
	active := make(chan error, 1)
	b.all.Go(func() { active <- b.server.WaitActive(limit, b.device) })
	select {
	case err = <-active:
	case <-b.ended:
		err = errors.Join(errors.New("the executor ended before it was connected"), b.err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the reference server on loopback: %w", err)
	}
	return b, nil
}

// enrollBench enrolls the throw-away device as `enroll` does it.
func (a *app) enrollBench(ctx context.Context, dir, url, root string) (*enroll.Record, handshake.PrivateKey, error) {
	home, err := enroll.HomeAt(dir)
	if err != nil {
		return nil, handshake.PrivateKey{}, err
	}
	server, err := enroll.ParseServer(url, false)
	if err != nil {
		return nil, handshake.PrivateKey{}, err
	}
	credential, err := enroll.NewCredential("throw-away")
	if err != nil {
		return nil, handshake.PrivateKey{}, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	enroller := &enroll.Enroller{
		Home:       home,
		Client:     &enroll.Client{Transport: transport, UserAgent: userAgent(), Now: a.now},
		Stores:     a.stores(),
		Now:        a.now,
		Rand:       a.random,
		Log:        slog.New(slog.DiscardHandler),
		WriteFaces: triedWriteFaces,
	}
	done, err := enroller.Enroll(ctx, enroll.Request{
		Server:     server,
		Credential: credential,
		Workspace:  root,
		KeyStore:   enroll.StoreFile,
		Platform:   platform(),
		Supports:   implemented(),
	})
	if err != nil {
		return nil, handshake.PrivateKey{}, fmt.Errorf("enroll the throw-away device: %w", err)
	}
	key, err := a.stores().Load(ctx, done.Record)
	return done.Record, key, err
}

// triedWriteFaces are those of a folder to try something in. One that cannot be
// written to will do: commands run there, and only writes there fail.
func triedWriteFaces(ctx context.Context, workspace string) ([]wire.Kind, error) {
	faces, err := writeFaces(ctx, workspace)
	if err != nil {
		return nil, ctx.Err()
	}
	return faces, nil
}

// do sends one instruction and waits for its settlement. When ctx ends first the
// instruction is cancelled, and its settlement says what became of it.
func (b *bench) do(ctx context.Context, kind wire.Kind, args wire.Args, content []byte, timeout time.Duration,
	deliver func(wire.ChunkKind, []byte) error) (refserver.Settlement, error) {
	call, err := b.server.Dispatch(ctx, b.device, refserver.Dispatch{
		Kind:         kind,
		Args:         args,
		Content:      content,
		TimeoutMs:    timeout.Milliseconds(),
		Deliver:      deliver,
		AckDelivered: true, // a slow reader slows the command, it does not lose it
	})
	if err != nil {
		return refserver.Settlement{}, fmt.Errorf("send the %s instruction: %w", kind, err)
	}
	select {
	case <-call.Done():
	case <-ctx.Done():
		call.Cancel()
	case <-b.ended:
		return refserver.Settlement{}, errors.Join(errors.New("the executor ended"), b.err)
	}
	return call.Wait(context.WithoutCancel(ctx))
}

// stop ends the executor and the server and removes the throw-away folder. What
// the server had to object to is an error: it would be one at a real server.
func (b *bench) stop() error {
	var err error
	if b.executor != nil {
		b.executor.Stop(wire.GoodbyeUserStop)
		<-b.ended
		err = b.err
	}
	if b.server != nil {
		for _, v := range b.server.Violations() {
			err = errors.Join(err, fmt.Errorf("the reference server objects: %s", v))
		}
		err = errors.Join(err, b.server.Close())
	}
	b.all.Wait()
	if removed := os.RemoveAll(filepath.Clean(b.home)); removed != nil {
		err = errors.Join(err, fmt.Errorf("remove the throw-away folder: %w", removed))
	}
	return err
}
