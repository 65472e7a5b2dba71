package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/wire"
)

// errLeft is the cause for which a start is given up: a signal came before there
// was an executor that could say goodbye.
var errLeft = errors.New("stopped by a signal")

// orders are the signals to a serving process, from its first moment on.
//
// HUP and PIPE are caught and dropped instead of ignored: what is ignored stays
// ignored in every command that is started. A log reader that goes away thus
// costs log lines, not the executor.
type orders struct {
	signals  chan os.Signal
	executor chan recipient
	leave    context.CancelCauseFunc
	done     chan struct{}
	all      sync.WaitGroup
}

// recipient obeys orders from the moment on that it is there.
type recipient struct {
	x   *executor.Executor
	log *slog.Logger
}

// obeySignals catches signals until stop. The context that it returns ends with
// errLeft if one says to leave before there is an executor.
func obeySignals(ctx context.Context) (context.Context, *orders) {
	ctx, leave := context.WithCancelCause(ctx)
	o := &orders{
		signals:  make(chan os.Signal, 8),
		executor: make(chan recipient),
		leave:    leave,
		done:     make(chan struct{}),
	}
	signal.Notify(o.signals, syscall.SIGTERM, os.Interrupt, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGPIPE)
	o.all.Go(o.pass)
	return ctx, o
}

// to hands orders to an executor from now on. One that was given before ended the
// context; look at that afterwards.
func (o *orders) to(x *executor.Executor, log *slog.Logger) { o.executor <- recipient{x, log} }

// stop leaves signals to what they do by themselves.
func (o *orders) stop() {
	signal.Stop(o.signals)
	close(o.done)
	o.all.Wait()
	o.leave(nil)
}

func (o *orders) pass() {
	var to recipient
	leaving := false
	for {
		var s os.Signal
		select {
		case s = <-o.signals:
		case to = <-o.executor:
			continue
		case <-o.done:
			return
		}
		switch {
		case s == syscall.SIGHUP || s == syscall.SIGPIPE:
		case to.x == nil:
			o.leave(errLeft)
		case leaving || s == syscall.SIGQUIT:
			to.log.Info("ending at once", "signal", s.String())
			to.x.StopNow()
		default:
			leaving = true
			reason := wire.GoodbyeShutdown
			if s == os.Interrupt {
				reason = wire.GoodbyeUserStop
			}
			to.log.Info("leaving: running work may finish; a second signal ends it", "signal", s.String())
			to.x.Stop(reason)
		}
	}
}
