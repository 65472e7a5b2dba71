package link

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tape is a connection that writes down what it is given.
type tape struct {
	mu     sync.Mutex
	writes [][]byte
	gate   chan struct{} // if set, each write waits for a value
	err    error
	closed chan struct{}
}

func newTape() *tape { return &tape{closed: make(chan struct{})} }

func (t *tape) Read([]byte) (int, error) { <-t.closed; return 0, io.EOF }
func (t *tape) Close() error             { close(t.closed); return nil }

func (t *tape) Write(p []byte) (int, error) {
	if t.gate != nil {
		select {
		case <-t.gate:
		case <-t.closed:
			return 0, net.ErrClosed
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return 0, t.err
	}
	t.writes = append(t.writes, bytes.Clone(p))
	return len(p), nil
}

func (t *tape) all() []byte { return bytes.Join(t.writes, nil) }

// inAWrite is in the middle of writing a frame to a peer that is slow to take it.
func inAWrite() (w *tape, c *coalescer, released <-chan error) {
	w = newTape()
	w.gate = make(chan struct{})
	c = newCoalescer(w, clock())
	done := make(chan error, 1)
	c.hold()
	_, _ = c.Write([]byte("frame"))
	go func() { done <- c.release() }()
	synctest.Wait()
	return w, c, done
}

// begin opens a bracket and writes a frame as the library does.
func begin(t *testing.T, c *coalescer, frame []byte) {
	t.Helper()
	c.hold()
	for len(frame) > 0 {
		n := min(len(frame), 4096)
		if _, err := c.Write(frame[:n]); err != nil {
			t.Fatal(err)
		}
		frame = frame[n:]
	}
}

func clock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func TestWhatIsWrittenInABracketLeavesAtItsEndInOneWrite(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 8192, 88_000, gatherBytes - 1} {
		w := newTape()
		c := newCoalescer(w, clock())
		want := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		begin(t, c, want)
		if len(w.writes) != 0 {
			t.Errorf("%d bytes: %d writes before the end of the bracket", size, len(w.writes))
		}
		if err := c.release(); err != nil {
			t.Fatal(err)
		}
		if len(w.writes) > 1 || !bytes.Equal(w.all(), want) {
			t.Errorf("%d bytes: %d writes of %d bytes", size, len(w.writes), len(w.all()))
		}
	}
}

func TestALargeFrameLeavesInPiecesThatAreNotSmall(t *testing.T) {
	w := newTape()
	c := newCoalescer(w, clock())
	want := make([]byte, 3*gatherBytes+17)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	begin(t, c, want)
	if err := c.release(); err != nil {
		t.Fatal(err)
	}
	if len(w.writes) > 4 || !bytes.Equal(w.all(), want) {
		t.Errorf("%d writes of %d bytes, want %d", len(w.writes), len(w.all()), len(want))
	}
}

func TestAWriteOutsideABracketLeavesAtOnce(t *testing.T) {
	w := newTape()
	c := newCoalescer(w, clock())
	for i := range 3 {
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if len(w.writes) != i+1 {
			t.Fatalf("%d writes after %d", len(w.writes), i+1)
		}
	}
}

func TestAPongDoesNotWaitBehindAFrameThatThePeerIsSlowToTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, released := inAWrite()
		if _, err := c.Write([]byte("pong")); err != nil {
			t.Fatal(err)
		}
		close(w.gate)
		if err := <-released; err != nil {
			t.Fatal(err)
		}
		if got := string(w.all()); got != "framepong" {
			t.Errorf("written: %q", got)
		}
	})
}

func TestABracketWaitsForAWriteUnderWayAndKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTape()
		w.gate = make(chan struct{})
		c := newCoalescer(w, clock())
		ponged := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("pong"))
			ponged <- err
		}()
		synctest.Wait()
		released := make(chan error, 1)
		go func() {
			c.hold()
			_, _ = c.Write([]byte("fra"))
			_, _ = c.Write([]byte("me"))
			released <- c.release()
		}()
		synctest.Wait()
		select {
		case <-released:
			t.Fatal("release returned before its bytes were written")
		default:
		}
		close(w.gate)
		if err := errors.Join(<-ponged, <-released); err != nil {
			t.Fatal(err)
		}
		if got := string(w.all()); got != "pongframe" {
			t.Errorf("written: %q", got)
		}
	})
}

func TestAnErrorIsReportedByWhatComesNext(t *testing.T) {
	w := newTape()
	w.err = errors.New("gone")
	c := newCoalescer(w, clock())
	c.hold()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("accepting: %v", err)
	}
	if err := c.release(); !errors.Is(err, w.err) {
		t.Errorf("release: %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, w.err) {
		t.Errorf("the next write: %v", err)
	}
}

func TestClosingFreesAWriterThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, released := inAWrite()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-released; !errors.Is(err, net.ErrClosed) {
			t.Errorf("release: %v", err)
		}
	})
}

func TestAPeerThatSendsPingsAndReadsNothingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, released := inAWrite()
		var err error
		for n := 0; err == nil; n += 131 {
			if n > pendingBytes {
				t.Fatal("no bound")
			}
			_, err = c.Write(make([]byte, 131))
		}
		_ = c.Close()
		<-released
	})
}

// Frames, pongs and closes from several goroutines arrive whole and in some order.
func TestNothingIsLostOrTornBetweenGoroutines(t *testing.T) {
	ours, theirs := net.Pipe()
	c := newCoalescer(ours, clock())
	const frames, pongs = 200, 500
	got := make(chan map[byte]int, 1)
	go func() {
		count := map[byte]int{}
		b, _ := io.ReadAll(theirs)
		for len(b) > 0 { // kind, length in 2 bytes, content of that kind
			kind, n := b[0], int(b[1])<<8|int(b[2])
			if len(b) < 3+n || bytes.Count(b[3:3+n], []byte{kind}) != n {
				count['!']++
				break
			}
			count[kind]++
			b = b[3+n:]
		}
		got <- count
	}()
	message := func(kind byte, n int) []byte {
		return append([]byte{kind, byte(n >> 8), byte(n)}, bytes.Repeat([]byte{kind}, n)...)
	}
	var turn sync.Mutex // the library's lock around one frame
	var all sync.WaitGroup
	all.Go(func() {
		for i := range frames {
			c.hold()
			turn.Lock()
			for m := message('f', i*97%20000); len(m) > 0; {
				n := min(len(m), 4096)
				_, _ = c.Write(m[:n])
				m = m[n:]
			}
			turn.Unlock()
			if err := c.release(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		all.Go(func() {
			for i := range pongs {
				turn.Lock()
				_, err := c.Write(message('p', i%125))
				turn.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_ = c.Close()
	if count := <-got; count['f'] != frames || count['p'] != 2*pongs || len(count) != 2 {
		t.Errorf("arrived: %v", count)
	}
}
