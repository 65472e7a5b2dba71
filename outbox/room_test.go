package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// background runs f and tells whether it has returned.
type background struct {
	done bool
	err  error
}

func inBackground(f func() error) *background {
	b := &background{}
	go func() {
		b.err = f()
		b.done = true
	}()
	return b
}

func (b *background) check(t *testing.T, what string, done bool, err error) {
	t.Helper()
	synctest.Wait()
	if b.done != done || !errors.Is(b.err, err) {
		t.Fatalf("%s: returned %v with %v, want %v with %v", what, b.done, b.err, done, err)
	}
}

func TestAppendBlocksAtTheLanesBounds(t *testing.T) {
	for _, c := range []struct{ size, most int }{{wire.MaxChunkBytes, 16}, {1, 1024}, {40_000, 16}} {
		synctest.Test(t, func(t *testing.T) {
			o := outbox.New(outbox.Config{})
			l := o.Open("a")
			data := make([]byte, c.size)
			for range c.most {
				must(t, l.Append(t.Context(), wire.ChunkStdout, data))
			}
			if s := o.Stats(); s.Bytes > 1<<20 || s.Chunks > 1024 {
				t.Errorf("%d chunks in %d bytes", s.Chunks, s.Bytes)
			}
			blocked := inBackground(func() error { return l.Append(t.Context(), wire.ChunkStdout, data) })
			blocked.check(t, "at the bound, suspended", false, nil)
			if !l.Stalled() {
				t.Error("not stalled")
			}
			o.Resume("1", []string{"a"}, nil)
			blocked.check(t, "connected", false, nil)
			if !l.Stalled() {
				t.Error("not stalled by back-pressure")
			}
			_, _ = o.Next(nil)
			blocked.check(t, "sent, not acknowledged", false, nil)
			o.AckChunk("a", 0)
			blocked.check(t, "acknowledged", true, nil)
			if l.Stalled() {
				t.Error("stalled though it was let in")
			}
			if s := o.Stats(); s.Chunks != c.most || s.Waiting != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestBlockedAppendEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{LaneChunks: 1})
		full := func(id string) *outbox.Lane {
			l := o.Open(id)
			say(t, l, "x")
			return l
		}
		a, b, c, d := full("a"), full("b"), full("c"), full("d")
		ctx, cancel := context.WithCancel(t.Context())
		try := func(ctx context.Context, l *outbox.Lane) *background {
			return inBackground(func() error { return l.Append(ctx, wire.ChunkStderr, []byte("y")) })
		}
		onCancel, onDrop, onFinish, onResume := try(ctx, a), try(t.Context(), b), try(t.Context(), c), try(t.Context(), d)
		onDrop.check(t, "first", false, nil)
		cancel()
		onCancel.check(t, "cancelled", true, context.Canceled)
		o.Drop("b")
		onDrop.check(t, "dropped", true, outbox.ErrDropped)
		c.Finish(wire.ReadOutcome{})
		onFinish.check(t, "finished", true, outbox.ErrFinished)
		o.Resume("1", []string{"a", "c"}, nil)
		onResume.check(t, "not listed", true, outbox.ErrDropped)
		if got := drain(t, o); got != "a0 c0 c!" {
			t.Errorf("sent %q", got)
		}
		if s := o.Stats(); s.Waiting != 0 {
			t.Errorf("%d still wait", s.Waiting)
		}
	})
}

func TestCallsOfOneLaneAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outbox.New(outbox.Config{LaneChunks: 1})
		o.Resume("1", nil, nil)
		l := o.Open("a")
		say(t, l, "0")
		for i := 1; i < 5; i++ {
			inBackground(func() error { return l.Append(t.Context(), wire.ChunkStdout, []byte{byte('0' + i)}) })
			synctest.Wait()
		}
		for i := range 5 {
			frame, ok := o.Next(nil)
			if !ok {
				t.Fatalf("chunk %d is missing", i)
			}
			if got := string(chunkOf(t, frame).Data); got != fmt.Sprint(i) {
				t.Errorf("chunk %d carries %q", i, got)
			}
			o.AckChunk("a", int64(i))
			synctest.Wait()
		}
	})
}

// chunk is the smallest size whose memory is all used.
const chunk = 512

func TestOverallBoundStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Room for ten chunks in all; five lanes that nobody acknowledges fill it.
		o := outbox.New(outbox.Config{TotalBytes: 10 * chunk, LaneBytes: 2 * chunk})
		o.Resume("1", nil, nil)
		data := make([]byte, chunk)
		for i := range 5 {
			l := o.Open(fmt.Sprint("stuck", i))
			for range 2 {
				must(t, l.Append(t.Context(), wire.ChunkStdout, data))
			}
			inBackground(func() error { return l.Append(t.Context(), wire.ChunkStdout, data) })
		}
		live := []*outbox.Lane{o.Open("x"), o.Open("y")}
		var passed [2]int
		for i, l := range live {
			inBackground(func() error {
				for l.Append(t.Context(), wire.ChunkStdout, data) == nil {
					passed[i]++
				}
				return nil
			})
		}
		acked := map[string]int64{}
		for range 200 {
			synctest.Wait()
			if b := o.Stats().Bytes; b > (10+2)*chunk {
				t.Fatalf("%d bytes held", b)
			}
			frame, ok := o.Next(nil)
			if !ok {
				break
			}
			if c := chunkOf(t, frame); c.InstructionID == "x" || c.InstructionID == "y" {
				o.AckChunk(c.InstructionID, c.StreamSeq)
				acked[c.InstructionID]++
			}
		}
		if acked["x"] < 90 || acked["y"] < 90 {
			t.Errorf("beside lanes that are stuck, x and y moved %v chunks of about 95 each", acked)
		}
		for _, id := range o.Holding() {
			o.Drop(id)
		}
		synctest.Wait()
	})
}

func TestRoomGoesRoundBlockedLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 8
		o := outbox.New(outbox.Config{TotalBytes: 12 * chunk})
		o.Resume("1", nil, nil)
		data := make([]byte, chunk)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range lanes {
			l := o.Open(fmt.Sprint(i))
			inBackground(func() error {
				for l.Append(ctx, wire.ChunkStdout, data) == nil {
				}
				return nil
			})
		}
		sent := map[string]int{}
		for range 800 {
			synctest.Wait()
			frame, ok := o.Next(nil)
			if !ok {
				t.Fatal("nothing to send")
			}
			c := chunkOf(t, frame)
			sent[c.InstructionID]++
			o.AckChunk(c.InstructionID, c.StreamSeq)
			time.Sleep(time.Microsecond)
		}
		for id, n := range sent {
			if n < 90 || n > 110 {
				t.Errorf("lane %s had %d turns of 800, fair is %d", id, n, 800/lanes)
			}
		}
		cancel()
		synctest.Wait()
	})
}
