package logind

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary is a login manager that writes down what is asked of it.
type diary struct {
	mu      sync.Mutex
	lines   []string
	signals chan bool
	refuse  bool
}

func newDiary() *diary { return &diary{signals: make(chan bool)} }

func (d *diary) note(line string) {
	d.mu.Lock()
	d.lines = append(d.lines, line)
	d.mu.Unlock()
}

func (d *diary) Sleeping(context.Context) (<-chan bool, error) { return d.signals, nil }

func (d *diary) Inhibit(context.Context, string, string) (io.Closer, error) {
	if d.refuse {
		d.note("refused")
		return nil, errors.New("not allowed")
	}
	d.note("lock")
	return lock{d}, nil
}

func (d *diary) Close() error { return nil }

type lock struct{ d *diary }

func (l lock) Close() error { l.d.note("unlock"); return nil }

var quiet = slog.New(slog.DiscardHandler)

func TestTheLockIsHeldWhileAwakeAndGivenUpAfterTheGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() {
			err := Watch(ctx, d, quiet, func(context.Context) { d.note("sleep") }, func() { d.note("wake") })
			if err != nil {
				t.Error(err)
			}
		})
		d.signals <- true
		d.signals <- false
		synctest.Wait()
		cancel()
		watch.Wait()
		want := []string{"lock", "sleep", "unlock", "wake", "lock", "unlock"}
		if !slices.Equal(d.lines, want) {
			t.Errorf("got  %v\nwant %v", d.lines, want)
		}
	})
}

func TestACallbackThatHangsDoesNotHoldTheMachineUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var watch sync.WaitGroup
		watch.Go(func() { _ = Watch(ctx, d, quiet, func(ctx context.Context) { <-ctx.Done() }, func() {}) })
		d.signals <- true
		d.signals <- false
		if took := time.Since(start); took != sleepLimit {
			t.Errorf("the lock was held for %v", took)
		}
		cancel()
		watch.Wait()
	})
}

func TestWithoutALockSleepIsStillHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		d.refuse = true
		var watch sync.WaitGroup
		watch.Go(func() {
			if err := Watch(t.Context(), d, quiet, func(context.Context) { d.note("sleep") }, func() {}); !errors.Is(err, ErrGone) {
				t.Errorf("err = %v", err)
			}
		})
		d.signals <- true
		close(d.signals)
		watch.Wait()
		if want := []string{"refused", "sleep"}; !slices.Equal(d.lines, want) {
			t.Errorf("got %v", d.lines)
		}
	})
}
