package process

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func TestACommandWhoseSupervisorNeverBeganIsKnownNotToHaveRun(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		serial uint64
		ready  bool
		never  bool
	}{
		{"ended before it was ready", 1, false, true},
		{"ended after it was ready", 1, true, false},
		{"ended after an earlier command", 2, false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			ours, other, err := newChannelPair()
			if err != nil {
				t.Fatal(err)
			}
			if theirs, err := newChannel(other); err != nil {
				syscall.Close(other)
				t.Fatal(err)
			} else {
				if x.ready {
					if err := theirs.put(msgReady, nil); err != nil {
						t.Fatal(err)
					}
				}
				theirs.close()
			}
			over := make(chan struct{})
			close(over)
			cmd := &command{serial: x.serial, link: &link{ch: ours, over: over, keeper: &keeperLink{gone: make(chan struct{})}}}
			err = cmd.awaitStart(context.Background(), &Spec{}, nil)
			var never *SpawnError
			if x.never && !errors.As(err, &never) || !x.never && !errors.Is(err, ErrLost) {
				t.Errorf("%v", err)
			}
		})
	}
}
