package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a reader that takes nothing until it is told to.
type stuck struct {
	read chan struct{}
	took bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.read
	return s.took.Write(p)
}

func TestWhoHasSomethingToSayNeedNotWaitForWhoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{read: make(chan struct{})}
		o := newOutlet(t.Context(), s, func() { t.Error("given up") })
		o.say(s, []byte("a"))
		o.say(s, []byte("b"))
		passed := make(chan error)
		go func() { passed <- o.pass(s, []byte("c")) }()
		synctest.Wait()
		select {
		case err := <-passed:
			t.Errorf("passed before it was taken: %v", err)
		default:
		}
		close(s.read)
		if err := <-passed; err != nil {
			t.Error(err)
		}
		o.say(s, []byte("d"))
		if err := o.end(); err != nil || s.took.String() != "abcd" {
			t.Errorf("%q, %v", s.took.String(), err)
		}
	})
}

func TestAReaderThatDoesNotReadIsNotWaitedForAfterAnInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		s := &stuck{read: make(chan struct{})}
		o := newOutlet(ctx, nil, nil)
		passed := make(chan error)
		go func() { passed <- o.pass(s, []byte("a")) }()
		synctest.Wait()
		interrupt()
		if err := <-passed; !errors.Is(err, errUnread) {
			t.Errorf("%v", err)
		}
		if err := o.pass(s, []byte("b")); !errors.Is(err, errUnread) {
			t.Errorf("afterwards: %v", err)
		}
		if err := o.end(); err != nil {
			t.Error(err)
		}
		close(s.read) // its goroutine lasts until then
	})
}

func TestAfterAnInterruptWhatIsReadIsStillWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		var took strings.Builder
		o := newOutlet(ctx, &took, nil)
		for range 3 {
			<-time.After(5 * outletPause)
			if err := o.pass(&took, []byte("x")); err != nil {
				t.Error(err)
			}
		}
		if err := o.end(); err != nil || took.String() != "xxx" {
			t.Errorf("%q, %v", took.String(), err)
		}
	})
}

type broken struct{ error }

func (b broken) Write([]byte) (int, error) { return 0, b.error }

func TestWithoutWhatItIsForTheRestIsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := broken{errors.New("it is full")}
		stopped := make(chan struct{})
		o := newOutlet(t.Context(), full, func() { close(stopped) })
		var other strings.Builder
		o.say(broken{errors.New("of no importance")}, []byte("a"))
		o.say(full, []byte("b"))
		<-stopped
		o.say(&other, []byte("c"))
		if err := o.end(); err != full.error || other.Len() > 0 {
			t.Errorf("%v, %q", err, other.String())
		}
	})
}
