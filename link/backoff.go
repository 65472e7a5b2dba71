package link

import (
	"encoding/binary"
	"io"
	"time"
)

// The back-off: the ceiling doubles from the first to the last, and each wait is
// drawn between half its ceiling and the whole, so that a crowd which lost one
// server together does not come back together.
const (
	backOffFirst = time.Second
	backOffLast  = 60 * time.Second
)

// backOff counts attempts since the last connection that proved good.
type backOff struct {
	random   io.Reader
	attempts int
}

func (b *backOff) reset() { b.attempts = 0 }

// next returns how long to wait before the next attempt.
func (b *backOff) next() time.Duration {
	ceiling := backOffLast
	if b.attempts < 6 { // 1 s << 6 is above the last
		ceiling = min(backOffFirst<<b.attempts, backOffLast)
	}
	b.attempts++
	var raw [8]byte
	if _, err := io.ReadFull(b.random, raw[:]); err != nil {
		return ceiling // a broken source costs promptness, never the server's peace
	}
	half := ceiling / 2
	return half + time.Duration(binary.BigEndian.Uint64(raw[:])%uint64(half+1))
}
