package simulation

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// target is what the instruction of that number writes.
func (w *World) target(n int) string {
	return path.Join(w.ground.folder(), fmt.Sprintf("written-%d", n))
}

// dispatch gives an instruction once the device is active, from a goroutine.
func (w *World) dispatch(ask *Ask, n int, calm bool) {
	w.calls.Go(func() {
		limit, cancel := context.WithTimeout(w.ctx, time.Minute)
		defer cancel()
		if w.server.WaitActive(limit, w.device) != nil {
			return
		}
		// Those who waited for the same moment go one after another.
		time.Sleep(time.Duration(n)*1013*time.Microsecond + 1)
		var h [3]heard
		what := refserver.Dispatch{Kind: ask.Kind, TimeoutMs: ask.Timeout.Milliseconds(), Straggler: ask.Straggler,
			AckDelivered: ask.Sip > 0,
			Deliver: func(kind wire.ChunkKind, data []byte) error {
				if ask.Sip > 0 {
					time.Sleep(ask.Sip)
				}
				w.judge.deliver(ask, &h, kind, data)
				return nil
			}}
		switch ask.Kind {
		case wire.KindWriteFile:
			what.Content = ask.content()
			what.Args = wire.WriteArgs{Path: w.target(n)}
		case wire.KindReadBinaryFile:
			name := path.Join(w.ground.folder(), fmt.Sprintf(hangName, ask.Program.Seed, ask.Size, ask.Hang))
			if err := w.ground.prepare(name, ask.content()); err != nil {
				w.judge.Fail("prepare a file: %v", err)
				return
			}
			what.Args = wire.PathArgs{Path: name}
		default:
			what.Args = wire.ExecArgs{Command: ask.Program.command()}
		}
		call, err := w.server.Dispatch(w.ctx, w.device, what)
		if err != nil {
			if !errors.Is(err, refserver.ErrClosed) {
				w.judge.Fail("dispatch: %v", err)
			}
			return
		}
		w.judge.given(call.ID(), ask, calm)
		var cancels sync.WaitGroup
		for _, at := range ask.Cancel {
			cancels.Go(func() {
				t := time.NewTimer(at)
				defer t.Stop()
				select {
				case <-t.C:
					w.judge.cancelled(call.ID())
					call.Cancel()
				case <-call.Done():
				}
			})
		}
		limitOfCall := time.NewTimer(w.longest)
		defer limitOfCall.Stop()
		select {
		case <-call.Done():
		case <-limitOfCall.C:
			w.judge.Fail("%s %s never settled", ask.Kind, call.ID())
			return
		}
		cancels.Wait()
		how, err := call.Wait(w.ctx)
		if err != nil {
			w.judge.Fail("%s: %v", call.ID(), err)
			return
		}
		w.judge.settled(call.ID(), how, h, w.ground.written)
	})
}
