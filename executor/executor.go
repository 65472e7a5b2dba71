package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/logind"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// The names in the device's folder.
const (
	LockFile   = "lock"
	StatusFile = "status.json"
	LedgerDir  = "ledger"
)

const (
	// mendLimit bounds the ending of what an earlier executor left running.
	mendLimit = 15 * time.Second
	// endLimit bounds the ending of commands on the way out.
	endLimit = 10 * time.Second
)

// Executor is one device's executor. Make one with New and Run it once.
type Executor struct {
	cfg    Config
	orders chan wire.GoodbyeReason // 1-buffered: Stop
	now    chan struct{}           // closed by StopNow
	once   sync.Once
	notice *notices
	parts  atomic.Pointer[parts] // nil until Run has assembled them
}

// Held is what an executor has in hand or remembers of its instructions. All zero is
// one that could go on for ever.
type Held struct {
	Running        int // running, or waiting to run
	Unacknowledged int // output or a result is kept until the server has it
	Stuck          int // answered for, and their calls have not come back
}

// Held counts at this moment.
func (x *Executor) Held() Held {
	p := x.parts.Load()
	if p == nil {
		return Held{}
	}
	return Held{len(p.dispatcher.Inflight()), p.report.outbox.Stats().Lanes, p.dispatcher.Stuck()}
}

// New makes an Executor. Nothing is touched before Run.
func New(c Config) *Executor {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Executor{cfg: c, orders: make(chan wire.GoodbyeReason, 1), now: make(chan struct{}), notice: &notices{}}
}

// Run makes an Executor and runs it until ctx ends (which is a StopNow) or
// something final happens.
func Run(ctx context.Context, c Config) error { return New(c).Run(ctx) }

// Stop asks for an orderly end: goodbye, the drain, and Run returns nil. Only the
// first call counts.
func (x *Executor) Stop(reason wire.GoodbyeReason) {
	select {
	case x.orders <- reason:
	default:
	}
}

// StopNow ends at once: no goodbye, no drain, but commands are ended first. Run
// returns nil then as well.
func (x *Executor) StopNow() { x.once.Do(func() { close(x.now) }) }

// Run works until it is stopped (nil) or something final happens: a
// *fence.HeldError if another executor of this device runs here,
// link.ErrRevoked, link.ErrSuperseded, a *link.TooOldError, or what cannot be set
// up. Commands that cannot be ended are no error of Run; they are logged by their
// pids, and stay in the ledger.
func (x *Executor) Run(ctx context.Context) (err error) {
	if x.cfg.Dir != "" {
		lock, err := fence.LockDevice(filepath.Join(x.cfg.Dir, LockFile), x.cfg.DeviceID)
		if err != nil {
			return err
		}
		defer func() {
			if err := lock.Unlock(); err != nil {
				x.cfg.Log.Warn("the instance lock was not given back", "err", err)
			}
		}()
	}
	p, err := x.assemble(ctx)
	if err != nil {
		return err
	}
	x.parts.Store(p)
	return x.work(ctx, p)
}

// parts is what an executor is assembled from.
type parts struct {
	control    process.Control
	dispatcher *instructions.Dispatcher
	link       *link.Link
	report     *report
}

// assemble mends what an earlier executor left and builds this one.
func (x *Executor) assemble(ctx context.Context) (*parts, error) {
	c := &x.cfg
	books, err := x.openBooks()
	if err != nil {
		return nil, err
	}
	var layer *files.Layer
	if c.Files != nil {
		fc := *c.Files
		if books != nil {
			fc.Journal = books
		}
		if layer, err = files.New(fc); err != nil {
			return nil, err
		}
	}
	if books != nil {
		x.mend(ctx, books, layer)
	}
	epoch, err := handshake.NewEpoch(c.Now(), c.Random)
	if err != nil {
		return nil, err
	}
	pc := process.Config{Log: c.Log}
	if books != nil {
		pc.Before, pc.After = books.before, books.after
	}
	newControl := c.Control
	if newControl == nil {
		newControl = process.New
	}
	control, err := newControl(pc)
	if err != nil {
		return nil, fmt.Errorf("set up process control: %w", err)
	}

	p := &parts{control: control}
	p.report = newReport(x, epoch, control.Level())
	handlers := map[wire.Kind]instructions.Handler{}
	exec := instructions.Exec(instructions.ExecConfig{Control: control, Shell: c.Shell, Env: c.Env, Workspace: c.WorkspaceRoot, Log: c.Log})
	handlers[wire.KindExec], handlers[wire.KindExecStream] = exec, exec
	if layer != nil {
		maps.Copy(handlers, instructions.Files(layer))
	}
	maps.Copy(handlers, c.Handlers)
	for kind, h := range handlers {
		handlers[kind] = p.report.metered(h)
	}

	oc := c.Outbox
	oc.Now, oc.Log = c.Now, c.Log
	out := outbox.New(oc)
	p.dispatcher = instructions.New(instructions.Config{Outbox: out, Handlers: handlers, Excluded: c.Excluded,
		Observe: p.report, Log: c.Log, Now: c.Now})
	p.link = link.New(link.Config{
		Network: c.Network,
		Identity: handshake.Identity{DeviceID: c.DeviceID, Key: c.Key, Epoch: epoch, WorkspaceRoot: c.WorkspaceRoot,
			Platform: c.Platform, Supports: p.dispatcher.Supports()},
		Outbox: out, Work: p.dispatcher, Now: c.Now, Random: c.Random, Log: c.Log,
		LastPath: c.LastPath, Drain: c.Drain,
		OnState: func(s link.State) {
			p.report.entered(s)
			if c.OnState != nil {
				c.OnState(s)
			}
		},
		OnBeat: p.report.touch,
		OnPath: c.OnPath,
	})
	p.report.outbox, p.report.link = out, p.link
	return p, nil
}

// work runs the link, and what goes with it, to its end, and then ends the rest.
func (x *Executor) work(ctx context.Context, p *parts) error {
	linkCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	if fault.On("executor: a listening socket") {
		if door, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
			defer door.Close()
		}
	}
	var beside sync.WaitGroup
	beside.Go(func() { x.obey(linkCtx, cancel, p.link) })
	beside.Go(func() { x.watchSleep(linkCtx, p.link) })
	reporting, ended := context.WithCancel(context.WithoutCancel(ctx))
	beside.Go(func() { p.report.run(reporting) })

	err := p.link.Run(linkCtx)
	stopped := linkCtx.Err() != nil
	cancel()

	// From here on nothing is said to the server; what still runs is ended.
	limit, done := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer done()
	if err := p.dispatcher.Close(limit); err != nil {
		x.cfg.Log.Warn("some instructions did not come to their end", "stuck", p.dispatcher.Stuck(), "err", err)
	}
	survivors := p.control.Close() // of commands, which are all that has to be dead
	ended()
	beside.Wait()
	if stopped && !final(err) {
		err = nil // StopNow
	}
	if survivors != nil {
		// A stop in order is one all the same: whoever starts it again would only
		// meet them again.
		x.cfg.Log.Error("not all commands could be ended; the next start looks for them", "err", survivors)
	}
	return err
}

// final reports whether the server's word ended the link, though it was stopped as
// well.
func final(err error) bool {
	var old *link.TooOldError
	return errors.Is(err, link.ErrRevoked) || errors.Is(err, link.ErrSuperseded) || errors.As(err, &old)
}

// obey passes orders on.
func (x *Executor) obey(ctx context.Context, stopNow context.CancelFunc, l *link.Link) {
	for {
		select {
		case reason := <-x.orders:
			l.Leave(reason)
		case <-x.now:
			stopNow()
			return
		case <-ctx.Done():
			return
		}
	}
}

// watchSleep tells the link of the machine's sleep where that is announced.
func (x *Executor) watchSleep(ctx context.Context, l *link.Link) {
	if x.cfg.Suspend == nil {
		return
	}
	manager, err := x.cfg.Suspend(ctx)
	if err != nil {
		x.cfg.Log.Debug("sleep is not announced here; it is noticed by the clock", "err", err)
		return
	}
	defer manager.Close()
	if err := logind.Watch(ctx, manager, x.cfg.Log, l.Suspend, l.Wake); err != nil {
		x.cfg.Log.Info("sleep is no longer announced; it is noticed by the clock", "err", err)
	}
}
