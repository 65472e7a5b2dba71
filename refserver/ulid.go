package refserver

import (
	"fmt"
	"io"
	"time"
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// mintID makes prefix plus a fresh 26-character ULID.
func (s *Server) mintID(prefix string) string {
	var b [16]byte
	ms := uint64(s.cfg.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (8 * (5 - i)))
	}
	s.random(b[6:])
	return prefix + encodeULID(b)
}

// random fills p. A broken source would make ids guessable; there is no way on.
func (s *Server) random(p []byte) {
	if _, err := io.ReadFull(s.cfg.Rand, p); err != nil {
		panic(fmt.Sprintf("refserver: random source: %v", err))
	}
}

func encodeULID(b [16]byte) string {
	var out [26]byte
	var acc uint64 // bits not yet written, the lowest n
	n := 2         // 130 bits of text hold 128: two leading zeros
	o := 0
	for _, x := range b {
		acc = acc<<8 | uint64(x)
		n += 8
		for n >= 5 {
			n -= 5
			out[o] = crockford[acc>>n&31]
			o++
		}
	}
	return string(out[:])
}

// decodeULID accepts what §1.3 accepts: 26 upper-case Crockford characters, the
// first at most 7.
func decodeULID(s string) (b [16]byte, ok bool) {
	if len(s) != 26 || s[0] > '7' {
		return b, false
	}
	var acc uint64
	n, o := -2, 0
	for i := range 26 {
		v := crockfordValue(s[i])
		if v < 0 {
			return [16]byte{}, false
		}
		acc = acc<<5 | uint64(v)
		n += 5
		if n >= 8 {
			n -= 8
			b[o] = byte(acc >> n)
			o++
		}
	}
	return b, true
}

func crockfordValue(c byte) int {
	for i := range len(crockford) {
		if crockford[i] == c {
			return i
		}
	}
	return -1
}

// validDeviceID reports whether id has the form the server mints.
func validDeviceID(id string) bool {
	const prefix = "dev_"
	if len(id) != len(prefix)+26 || id[:len(prefix)] != prefix {
		return false
	}
	_, ok := decodeULID(id[len(prefix):])
	return ok
}

// instant is a wall-clock time as the HTTP answers spell it.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
