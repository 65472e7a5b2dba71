package main

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/wire"
)

// obeySignals turns signals into orders to an executor, until the function it
// returns is called.
//
// HUP and PIPE are caught and dropped instead of ignored: what is ignored stays
// ignored in every command that is started. A log reader that goes away thus
// costs log lines, not the executor.
func obeySignals(x *executor.Executor, log *slog.Logger) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGPIPE)
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		leaving := false
		for {
			var s os.Signal
			select {
			case s = <-signals:
			case <-done:
				return
			}
			switch {
			case s == syscall.SIGHUP || s == syscall.SIGPIPE:
			case leaving || s == syscall.SIGQUIT:
				log.Info("ending at once", "signal", s.String())
				x.StopNow()
			default:
				leaving = true
				reason := wire.GoodbyeShutdown
				if s == os.Interrupt {
					reason = wire.GoodbyeUserStop
				}
				log.Info("leaving: running work may finish; a second signal ends it", "signal", s.String())
				x.Stop(reason)
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(done)
		all.Wait()
	}
}
