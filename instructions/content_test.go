package instructions

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

func part(id string, p wire.PayloadPart, data []byte) *wire.Payload {
	return &wire.Payload{Gen: "1", InstructionID: id, Part: p, Data: data}
}

// collect reads content to its commit.
func collect(ctx context.Context, c *Content) ([]byte, error) {
	var all []byte
	for {
		p, err := c.Next(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, p.Data...)
		if p.Part == wire.PartCommit {
			return all, nil
		}
	}
}

// write is what a write handler does, without a disk.
func write(got *[]byte) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		var err error
		*got, err = collect(ctx, c.Content)
		switch {
		case errors.Is(err, ErrContentCut), errors.Is(err, ErrContentStalled):
			return wire.Failf(wire.CodeTargetUnavailable, "%v: nothing was written", err)
		case err != nil:
			return c.Stopped(ctx)
		}
		if c.Begin(ctx) != nil {
			return c.Stopped(ctx)
		}
		return wire.WriteOutcome{CanonicalPath: "/f"}
	}
}

func TestContentIsReceivedWhileItsInstructionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []byte
		b := newBench(t, handlers{wire.KindExec: untilStopped, wire.KindWriteFile: write(&got)})
		b.d.SetMaxInflight(1)
		b.d.Instruct(ask("runs", wire.KindExec, aCommand))
		b.d.Instruct(ask("w", wire.KindWriteFile, aWrite))
		var want []byte
		b.d.Payload(part("w", wire.PartBegin, nil))
		for i := range 64 { // 16 MiB, four times the window
			data := bytes.Repeat([]byte{byte(i)}, 256<<10)
			want = append(want, data...)
			b.d.Payload(part("w", wire.PartChunk, data))
		}
		b.d.Payload(part("w", wire.PartCommit, nil))
		b.d.Payload(part("w", wire.PartChunk, []byte("after the commit")))
		b.unanswered("w")
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes arrived, want %d", len(got), len(want))
		}
		b.d.Disconnected() // too late to matter
		b.d.Cancel("runs")
		if got := describe(b.outcome("w")); got != "write" {
			t.Errorf("w: %s", got)
		}
		if r := b.see.report("w"); r.BytesIn != int64(len(want)) {
			t.Errorf("report says %d bytes", r.BytesIn)
		}
		b.finish()
	})
}

func TestAPayloadCutByADisconnectWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, waiting []byte
		b := newBench(t, handlers{wire.KindExec: untilStopped, wire.KindWriteFile: write(&running), wire.KindAppendFile: write(&waiting)})
		b.d.SetMaxInflight(2)
		b.d.Instruct(ask("runs", wire.KindExec, aCommand))
		b.d.Instruct(ask("w", wire.KindWriteFile, aWrite))
		b.d.Instruct(ask("a", wire.KindAppendFile, aWrite))
		for _, id := range []string{"w", "a"} {
			b.d.Payload(part(id, wire.PartBegin, nil))
			b.d.Payload(part(id, wire.PartChunk, []byte("half")))
		}
		b.d.Disconnected()
		for _, id := range []string{"w", "a"} {
			b.d.Payload(part(id, wire.PartCommit, nil)) // cannot make it whole
			if got := describe(b.outcome(id)); got != "target_unavailable" {
				t.Errorf("%s: %s", id, got)
			}
			if b.see.report(id).Started != (time.Time{}) {
				t.Errorf("%s began", id)
			}
		}
		b.unanswered("runs")
		b.finish()
	})
}

func TestAStalledDiskDoesNotHoldUpTheSocketForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, handlers{wire.KindWriteFile: func(ctx context.Context, c *Call) wire.Outcome {
			<-release // a write(2) that does not return
			_, err := collect(ctx, c.Content)
			return wire.Failf(wire.CodeTargetUnavailable, "%v", err)
		}})
		b.d.Instruct(ask("w", wire.KindWriteFile, aWrite))
		start := time.Now()
		for range 10 {
			b.d.Payload(part("w", wire.PartChunk, make([]byte, 1<<19)))
		}
		if took := time.Since(start); took != contentPatience {
			t.Errorf("the reader was held up for %v, want %v and then no more", took, contentPatience)
		}
		if held := b.d.window.bytes.Load(); held != 0 {
			t.Errorf("%d bytes of content that was given up are held", held)
		}
		close(release)
		if got := describe(b.outcome("w")); got != "target_unavailable" {
			t.Errorf("w: %s", got)
		}
		b.finish()
	})
}

func TestASlowDiskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindWriteFile: func(ctx context.Context, c *Call) wire.Outcome {
			for {
				time.Sleep(contentPatience - time.Millisecond)
				if p, err := c.Content.Next(ctx); err != nil || p.Part == wire.PartCommit {
					if err != nil || c.Begin(ctx) != nil {
						t.Error(err)
					}
					return wire.WriteOutcome{CanonicalPath: "/f"}
				}
			}
		}})
		b.d.Instruct(ask("w", wire.KindWriteFile, aWrite))
		for range 30 {
			b.d.Payload(part("w", wire.PartChunk, make([]byte, 1<<19)))
			if held := b.d.window.bytes.Load(); held > contentWindow {
				t.Fatalf("%d bytes are held", held)
			}
		}
		b.d.Payload(part("w", wire.PartCommit, nil))
		time.Sleep(time.Minute)
		if got := describe(b.outcome("w")); got != "write" {
			t.Errorf("w: %s", got)
		}
		b.finish()
	})
}

func TestContentOfAllInstructionsTogetherIsBounded(t *testing.T) {
	w := newWindow()
	var all []*Content
	for range 8 {
		c := newContent(w)
		all = append(all, c)
		for range 7 {
			c.put(part("w", wire.PartChunk, make([]byte, 1<<19)))
		}
	}
	if held := w.bytes.Load(); held <= contentTotal-8<<19 || held > contentTotal {
		t.Errorf("%d bytes are held, want almost %d", held, contentTotal)
	}
	for _, c := range all {
		c.Close()
		c.put(part("w", wire.PartChunk, make([]byte, 1<<19)))
	}
	if held := w.bytes.Load(); held != 0 {
		t.Errorf("%d bytes are held for nobody", held)
	}
}

func TestPayloadForNobodyIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, handlers{wire.KindExec: untilStopped})
		b.d.Instruct(ask("x", wire.KindExec, aCommand))
		for range 100 {
			b.d.Payload(part("x", wire.PartChunk, make([]byte, 1<<19)))
			b.d.Payload(part("nobody", wire.PartChunk, make([]byte, 1<<19)))
		}
		if held := b.d.window.bytes.Load(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
		b.finish()
	})
}
