package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilInterrupted ends ctx at the first of these signals. Another one ends the
// process, as if nobody had caught it: what the end waits for may never come.
func untilInterrupted(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// catchBrokenPipes has a reader that goes away fail a write, so that what is left
// to do is done, instead of end the process. It returns what undoes that.
func catchBrokenPipes() func() {
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	return func() { signal.Stop(pipes) }
}
