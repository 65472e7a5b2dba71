package link

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// frameLimit is how long the bytes of one frame count as signs of life. A frame of
// the largest size takes as long on a line of 75 kbit/s; a peer that is slower than
// that, or lets one trickle, has its pongs stuck behind it as well.
const frameLimit = 2 * time.Minute

// framing follows the frames of a WebSocket (RFC 6455, §5.2) as they arrive, as far
// as the library does not tell: that a frame is too large it finds out when that
// many bytes have come, and whatever is in between, pongs too, is the frame's.
type framing struct {
	head  [14]byte // of the frame whose header is arriving
	have  int      // bytes of head
	left  uint64   // of the payload under way
	began time.Duration
}

// take follows what arrived at a reading of the clock. It returns how much of it
// may be passed on, all of it but for an error, and whether it is a sign of life.
func (f *framing) take(p []byte, now time.Duration) (n int, alive bool, err error) {
	for begin := 0; n < len(p); {
		if f.left > 0 {
			part := min(f.left, uint64(len(p)-n))
			f.left -= part
			n += int(part)
			alive = alive || f.left == 0
			continue
		}
		if f.have == 0 {
			begin, f.began = n, now
		}
		f.head[f.have] = p[n]
		f.have++
		n++
		length, complete := f.announced()
		if !complete {
			continue
		}
		if length > wire.MaxFrameBytes+readSlack {
			return begin, alive, fmt.Errorf("%w: one of %d bytes is announced", websocket.ErrMessageTooBig, length)
		}
		f.have, f.left = 0, length
		alive = alive || length == 0
	}
	under := f.have > 0 || f.left > 0
	return n, alive || under && now-f.began < frameLimit, nil
}

// announced is the length of the payload, once the header is complete.
func (f *framing) announced() (length uint64, complete bool) {
	if f.have < 2 {
		return 0, false
	}
	size := 2
	switch length = uint64(f.head[1] & 0x7f); length {
	case 126:
		size += 2
		length = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		size += 8
		length = binary.BigEndian.Uint64(f.head[2:])
	}
	if f.head[1]&0x80 != 0 {
		size += 4 // the mask's key
	}
	return length, f.have >= size
}
