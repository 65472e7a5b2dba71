// Package logind hears from systemd's login manager that the machine is about to
// sleep, and holds the sleep back for the moment a goodbye takes.
//
// It promises to hold a delay lock whenever the machine is awake and to give it up
// as soon as the sleep may come, whatever the callback does. Where there is no
// system bus or no login manager (containers, macOS), [Connect] says so and the
// executor notices sleep by the wall clock instead.
package logind

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"
)

// Manager is the part of the login manager that is used here.
type Manager interface {
	// Sleeping delivers true before each sleep and false after it. The channel is
	// closed when the bus goes away.
	Sleeping(ctx context.Context) (<-chan bool, error)
	// Inhibit delays sleep until the lock is closed, or until the manager's own
	// limit (5 s by default).
	Inhibit(ctx context.Context, who, why string) (io.Closer, error)
	// Close lets go of the bus.
	Close() error
}

var (
	// ErrUnavailable: this machine has no login manager to ask.
	ErrUnavailable = errors.New("no login manager on this machine")
	// ErrGone: the bus went away while it was watched.
	ErrGone = errors.New("the system bus went away")
)

// sleepLimit bounds the callback before a sleep. It is below the manager's own
// limit, so that the lock is given up in order.
const sleepLimit = 4 * time.Second

// Watch calls sleep before each sleep of the machine, with a context that ends when
// the machine will wait no longer, and wake after it. It returns when ctx ends (nil)
// or the bus goes away (ErrGone). The calls never overlap.
func Watch(ctx context.Context, m Manager, log *slog.Logger, sleep func(context.Context), wake func()) error {
	signals, err := m.Sleeping(ctx)
	if err != nil {
		return err
	}
	var lock io.Closer
	take := func() {
		if lock != nil {
			return
		}
		if lock, err = m.Inhibit(ctx, "sema device executor", "say goodbye to the server"); err != nil {
			lock = nil
			log.Debug("sleep cannot be delayed; a goodbye before it may come too late", "err", err)
		}
	}
	give := func() {
		if lock != nil {
			_ = lock.Close()
			lock = nil
		}
	}
	defer give()
	take()
	for {
		select {
		case <-ctx.Done():
			return nil
		case asleep, ok := <-signals:
			switch {
			case !ok:
				if ctx.Err() != nil {
					return nil
				}
				return ErrGone
			case asleep:
				limit, cancel := context.WithTimeout(ctx, sleepLimit)
				sleep(limit)
				cancel()
				give()
			default:
				wake()
				take()
			}
		}
	}
}
