package link

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

type constant byte

func (c constant) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{byte(c)}, len(p)))
	return len(p), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

func TestTheBackOffDoublesToAMinuteBetweenHalfAndWhole(t *testing.T) {
	ceilings := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for _, source := range []io.Reader{constant(0), constant(0xff), rand.NewChaCha8([32]byte{7}), broken{}} {
		b := backOff{random: source}
		for range 2 {
			for i, c := range ceilings {
				ceiling := c * time.Second
				if wait := b.next(); wait < ceiling/2 || wait > ceiling {
					t.Errorf("%T: wait %d is %v, ceiling %v", source, i, wait, ceiling)
				}
			}
			b.reset()
		}
	}
}

func TestTheJitterUsesTheWholeRange(t *testing.T) {
	b := backOff{random: rand.NewChaCha8([32]byte{3})}
	lowest, highest := time.Hour, time.Duration(0)
	for range 1000 {
		b.reset()
		wait := b.next()
		lowest, highest = min(lowest, wait), max(highest, wait)
	}
	if lowest > 520*time.Millisecond || highest < 980*time.Millisecond {
		t.Errorf("1000 first waits lie between %v and %v", lowest, highest)
	}
}
