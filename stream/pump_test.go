package stream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/stream"
	"github.com/sema-agent/device-executor/wire"
)

// sink keeps pieces and the time each came at.
type sink struct {
	pieces [][]byte
	at     []time.Duration
	start  time.Time
}

func newSink() *sink { return &sink{start: time.Now()} }

func (s *sink) put(_ context.Context, data []byte) error {
	s.pieces = append(s.pieces, bytes.Clone(data))
	s.at = append(s.at, time.Since(s.start))
	return nil
}

func (s *sink) all() []byte { return bytes.Join(s.pieces, nil) }

func (s *sink) checkPieces(t *testing.T) {
	t.Helper()
	for i, p := range s.pieces {
		if len(p) == 0 || len(p) > wire.MaxChunkBytes {
			t.Fatalf("piece %d has %d bytes", i, len(p))
		}
	}
}

func noise(n int, seed uint64) []byte {
	b := make([]byte, n)
	c := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = c.Read(b)
	return b
}

func TestEveryByteInOrderOnce(t *testing.T) {
	full := wire.MaxChunkBytes
	for _, size := range []int{0, 1, full - 1, full, full + 1, 2 * full, 3*full + 17, 1 << 20} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"as it comes":   func(r io.Reader) io.Reader { return r },
			"half reads":    iotest.HalfReader,
			"data with EOF": iotest.DataErrReader,
			"one byte at once": func(r io.Reader) io.Reader {
				if size > 200_000 {
					return r
				}
				return iotest.OneByteReader(r)
			},
		} {
			want := noise(size, uint64(size))
			s := newSink()
			if err := stream.Pump(t.Context(), wrap(bytes.NewReader(want)), s.put); err != nil {
				t.Fatalf("%s, %d bytes: %v", name, size, err)
			}
			s.checkPieces(t)
			if !bytes.Equal(s.all(), want) {
				t.Fatalf("%s, %d bytes: got %d bytes, not the same", name, size, len(s.all()))
			}
		}
	}
}

func TestFloodGoesInFullPieces(t *testing.T) {
	s := newSink()
	want := noise(40*wire.MaxChunkBytes, 1)
	if err := stream.Pump(t.Context(), bytes.NewReader(want), s.put); err != nil {
		t.Fatal(err)
	}
	if len(s.pieces) > 42 {
		t.Errorf("40 full pieces went as %d", len(s.pieces))
	}
}

func TestSlowLineAppearsWithin50ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := newSink()
		go func() {
			for range 20 {
				_, _ = io.WriteString(w, "a line\n")
				time.Sleep(time.Second)
			}
			_ = w.Close()
		}()
		if err := stream.Pump(t.Context(), r, s.put); err != nil {
			t.Fatal(err)
		}
		if len(s.pieces) != 20 {
			t.Fatalf("20 lines a second apart came as %d pieces", len(s.pieces))
		}
		for i, at := range s.at {
			if late := at - time.Duration(i)*time.Second; late > 50*time.Millisecond {
				t.Errorf("line %d came %v late", i, late)
			}
		}
	})
}

func TestSmallWritesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		s := newSink()
		go func() {
			for range 10_000 {
				_, _ = w.Write([]byte{'x'})
				time.Sleep(100 * time.Microsecond) // 1 s in all
			}
			_ = w.Close()
		}()
		if err := stream.Pump(t.Context(), r, s.put); err != nil {
			t.Fatal(err)
		}
		if len(s.pieces) > 250 {
			t.Errorf("10,000 writes in a second made %d pieces", len(s.pieces))
		}
		if n := len(s.all()); n != 10_000 {
			t.Errorf("%d of 10,000 bytes came", n)
		}
	})
}

func TestReadingGoesOnWhileGatheringAndPutting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		release := make(chan struct{})
		var got bytes.Buffer
		done := make(chan error, 1)
		go func() {
			done <- stream.Pump(t.Context(), r, func(_ context.Context, data []byte) error {
				<-release
				got.Write(data)
				return nil
			})
		}()
		// One byte is being put; one whole block and the rest of another fit beside it.
		var accepted int
		go func() {
			defer w.Close()
			buf := make([]byte, 1024)
			for range 300 {
				n, err := w.Write(buf)
				accepted += n
				if err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if held := accepted; held < wire.MaxChunkBytes || held > 2*wire.MaxChunkBytes {
			t.Errorf("while nobody took a byte, %d were read", held)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got.Len() != 300*1024 {
			t.Errorf("%d of %d bytes came", got.Len(), 300*1024)
		}
	})
}

func TestErrorOfPutEndsIt(t *testing.T) {
	no := errors.New("no more")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	_, _ = w.WriteString("x")
	// The pipe stays open and silent: only the deadline can end the reading.
	if err := stream.Pump(t.Context(), r, func(context.Context, []byte) error { return no }); err != no {
		t.Fatalf("got %v", err)
	}
}

func TestEndOfContextEndsIt(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(10*time.Millisecond, cancel).Stop()
	if err := stream.Pump(ctx, r, newSink().put); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestErrorOfReaderComesAfterItsBytes(t *testing.T) {
	broken := errors.New("broken")
	s := newSink()
	err := stream.Pump(t.Context(), io.MultiReader(bytes.NewReader(noise(100_000, 3)), iotest.ErrReader(broken)), s.put)
	if err != broken {
		t.Fatalf("got %v", err)
	}
	if n := len(s.all()); n != 100_000 {
		t.Fatalf("%d of 100,000 bytes came before the error", n)
	}
	if err := stream.Pump(t.Context(), silent{}, s.put); err != io.ErrNoProgress {
		t.Fatalf("a reader that yields nothing: got %v", err)
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

// FuzzPump lets readers and takers of any rhythm meet.
func FuzzPump(f *testing.F) {
	f.Add(uint64(1), 300_000)
	f.Add(uint64(7), 65_536)
	f.Fuzz(func(t *testing.T, seed uint64, size int) {
		if size < 0 || size > 1<<20 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			want := noise(size, seed)
			r, w := io.Pipe()
			go func() {
				rnd := rand.New(rand.NewPCG(seed, 1))
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 1+rnd.IntN(1<<rnd.IntN(18)))
					_, _ = w.Write(rest[:n])
					rest = rest[n:]
					if rnd.IntN(4) == 0 {
						time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
					}
				}
				_ = w.Close()
			}()
			s := newSink()
			err := stream.Pump(t.Context(), r, func(ctx context.Context, data []byte) error {
				if rnd.IntN(4) == 0 {
					time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
				}
				return s.put(ctx, data)
			})
			if err != nil {
				t.Fatal(err)
			}
			s.checkPieces(t)
			if !bytes.Equal(s.all(), want) {
				t.Fatal("the bytes that came are not those that were written")
			}
		})
	})
}

// BenchmarkPump moves a flood through a pipe of the OS; "raw" is the same pipe read
// and thrown away.
func BenchmarkPump(b *testing.B) {
	for _, with := range []string{"raw", "pump"} {
		b.Run(with, func(b *testing.B) {
			r, w, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			block := make([]byte, wire.MaxChunkBytes)
			b.SetBytes(int64(len(block)))
			b.ReportAllocs()
			var writer sync.WaitGroup
			writer.Go(func() {
				for b.Loop() {
					_, _ = w.Write(block)
				}
				_ = w.Close()
			})
			if with == "raw" {
				_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 64<<10))
			} else {
				err = stream.Pump(b.Context(), r, func(context.Context, []byte) error { return nil })
			}
			if err != nil {
				b.Fatal(err)
			}
			writer.Wait()
			_ = r.Close()
		})
	}
}
