package outbox_test

import (
	"fmt"
	"testing"

	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// BenchmarkThroughput takes chunks through Append, Next and AckChunk.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{100, 4 << 10, wire.MaxChunkBytes} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o := outbox.New(outbox.Config{})
			o.Resume("7", nil, nil)
			l := o.Open("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W")
			data := make([]byte, size)
			frame := make([]byte, 0, 2*wire.MaxChunkBytes)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for seq := int64(0); b.Loop(); seq++ {
				if err := l.Append(b.Context(), wire.ChunkStdout, data); err != nil {
					b.Fatal(err)
				}
				if _, ok := o.Next(frame[:0]); !ok {
					b.Fatal("nothing to send")
				}
				o.AckChunk(l.ID(), seq)
			}
		})
	}
}

// BenchmarkBlocked is the same with an Append that always waits for room.
func BenchmarkBlocked(b *testing.B) {
	o := outbox.New(outbox.Config{LaneChunks: 1})
	o.Resume("7", nil, nil)
	l := o.Open("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W")
	data := make([]byte, 4<<10)
	frame := make([]byte, 0, 2*wire.MaxChunkBytes)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l.Append(b.Context(), wire.ChunkStdout, data) == nil {
		}
	}()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for seq := int64(0); b.Loop(); {
		if _, ok := o.Next(frame[:0]); !ok {
			<-o.Ready()
			continue
		}
		o.AckChunk(l.ID(), seq)
		seq++
	}
	o.Drop(l.ID())
	<-done
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	o := outbox.New(outbox.Config{})
	o.Resume("7", nil, nil)
	l := o.Open("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W")
	data := make([]byte, 4<<10)
	frame := make([]byte, 0, 2*wire.MaxChunkBytes)
	seq := int64(0)
	n := testing.AllocsPerRun(1000, func() {
		must(t, l.Append(t.Context(), wire.ChunkStdout, data))
		_, _ = o.Next(frame[:0])
		o.AckChunk(l.ID(), seq)
		seq++
	})
	if n >= 1 {
		t.Errorf("%v allocations for each chunk", n)
	}
}
