package link

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// frameOf is a frame with a payload of that size, as short as it can be said or not.
func frameOf(size int, long, masked bool) []byte {
	b := []byte{0x82, 0}
	switch {
	case long || size > math.MaxUint16:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(size))
	case size > 125:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(size))
	default:
		b[1] = byte(size)
	}
	if masked {
		b[1] |= 0x80
		b = append(b, 1, 2, 3, 4)
	}
	return append(b, make([]byte, size)...)
}

func TestFramesAreFollowedHoweverTheyArrive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	ends := map[int]bool{}
	for _, size := range []int{0, 1, 125, 126, 127, math.MaxUint16, math.MaxUint16 + 1, wire.MaxFrameBytes, wire.MaxFrameBytes + readSlack} {
		for i := range 4 {
			stream = append(stream, frameOf(size, i&1 > 0, i&2 > 0)...)
			ends[len(stream)] = true
		}
	}
	tooLarge := len(stream)
	stream = append(stream, frameOf(wire.MaxFrameBytes+readSlack+1, false, false)...)
	for range 30 {
		var f framing
		for at := 0; ; {
			part := stream[at:min(at+1+r.IntN(1<<r.IntN(20)), len(stream))]
			n, alive, err := f.take(part, time.Hour)
			whole := false
			for end := range ends {
				whole = whole || at < end && end <= at+n
			}
			at += n
			if err != nil {
				if !errors.Is(err, websocket.ErrMessageTooBig) || at > tooLarge+9 || n > 0 && at != tooLarge {
					t.Fatalf("after %d bytes: %v, with %d more of them passed on", at, err, n)
				}
				break
			}
			if n != len(part) || at > tooLarge+9 {
				t.Fatalf("%d of %d bytes taken, the last of them number %d", n, len(part), at)
			}
			if !alive && whole {
				t.Fatalf("no life was seen in a frame that ended at or before byte %d", at)
			}
			// For as long as that, bytes of a frame that has not ended do as well.
			if !alive && !ends[at] {
				t.Fatalf("no life was seen in a young frame, at byte %d", at)
			}
		}
	}
}

func TestBytesOfAFrameCountForItsFirstTwoMinutes(t *testing.T) {
	var f framing
	frame := frameOf(1000, false, false)
	for i, b := range frame {
		now := time.Duration(i) * time.Second
		_, alive, err := f.take([]byte{b}, now)
		if want := now < frameLimit || i == len(frame)-1; err != nil || alive != want {
			t.Fatalf("byte %d after %v: alive %t, %v", i, now, alive, err)
		}
	}
	if _, alive, _ := f.take([]byte{0x8a}, time.Hour); !alive {
		t.Error("the next frame begins anew")
	}
}
