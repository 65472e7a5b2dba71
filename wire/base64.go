package wire

import (
	"encoding/binary"
	"errors"
	"slices"
)

// ErrBase64 reports text that is not canonical base64 (§4): standard alphabet,
// padded, no line breaks, unused bits zero.
var ErrBase64 = errors.New("not canonical base64")

// Base64 is most of what this package does on a busy connection. Both
// directions go by tables here, which is about twice as fast as the
// library (see the benchmarks) and leaves no spelling to be ruled out after
// the library has accepted it.

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// sextets holds, for each place in a group of four characters, the bits that a
// character gives to the group's 24; notSextet for what is no such character.
var sextets = func() (places [4][256]uint32) {
	for place := range places {
		for c := range places[place] {
			places[place][c] = notSextet
		}
		for v := range len(base64Alphabet) {
			places[place][base64Alphabet[v]] = uint32(v) << (18 - 6*place)
		}
	}
	return places
}()

const notSextet = 1 << 31

// pairs holds the two characters for each 12 bits, the first in the high byte.
var pairs = func() (p [1 << 12]uint16) {
	for v := range p {
		p[v] = uint16(base64Alphabet[v>>6])<<8 | uint16(base64Alphabet[v&63])
	}
	return p
}()

// DecodeBase64 appends to dst the bytes that s stands for. Anything that would
// not re-encode to s itself is ErrBase64, and dst is returned as it was.
func DecodeBase64[T ~string | ~[]byte](dst []byte, s T) ([]byte, error) {
	if len(s) == 0 {
		return dst, nil
	}
	if len(s)%4 != 0 {
		return dst, ErrBase64
	}
	start := len(dst)
	dst = slices.Grow(dst, len(s)/4*3)
	out := dst[start : start+len(s)/4*3]

	// All groups but the last, two at a time while there is room to write eight
	// bytes for the six.
	at, last := 0, len(s)-4
	for ; at+8 <= last && len(out) >= 8; at += 8 {
		g := s[at : at+8]
		high := sextets[0][g[0]] | sextets[1][g[1]] | sextets[2][g[2]] | sextets[3][g[3]]
		low := sextets[0][g[4]] | sextets[1][g[5]] | sextets[2][g[6]] | sextets[3][g[7]]
		if (high|low)&notSextet != 0 {
			return dst[:start], ErrBase64
		}
		binary.BigEndian.PutUint64(out, uint64(high)<<40|uint64(low)<<16)
		out = out[6:]
	}
	for ; at <= last; at += 4 {
		g := s[at : at+4]
		size := 3
		var c2, c3 uint32
		switch {
		case at < last || g[3] != '=':
			c2, c3 = sextets[2][g[2]], sextets[3][g[3]]
		case g[2] != '=':
			size, c2 = 2, sextets[2][g[2]]
		default:
			size = 1
		}
		v := sextets[0][g[0]] | sextets[1][g[1]] | c2 | c3
		if v&notSextet != 0 || v<<(8+8*size) != 0 { // bits that no byte takes
			return dst[:start], ErrBase64
		}
		out[0] = byte(v >> 16)
		if size > 1 {
			out[1] = byte(v >> 8)
		}
		if size > 2 {
			out[2] = byte(v)
		}
		out = out[size:]
	}
	return dst[:start+len(s)/4*3-len(out)], nil
}

// appendBase64 appends data as canonical base64.
func appendBase64(dst, data []byte) []byte {
	start := len(dst)
	size := (len(data) + 2) / 3 * 4
	dst = slices.Grow(dst, size)[:start+size]
	out := dst[start:]
	for len(data) >= 8 && len(out) >= 8 {
		v := binary.BigEndian.Uint64(data) // six of the eight bytes
		binary.BigEndian.PutUint64(out, uint64(pairs[v>>52])<<48|uint64(pairs[v>>40&0xfff])<<32|
			uint64(pairs[v>>28&0xfff])<<16|uint64(pairs[v>>16&0xfff]))
		data, out = data[6:], out[8:]
	}
	for ; len(data) >= 3; data, out = data[3:], out[4:] {
		v := uint32(data[0])<<16 | uint32(data[1])<<8 | uint32(data[2])
		binary.BigEndian.PutUint32(out, uint32(pairs[v>>12])<<16|uint32(pairs[v&0xfff]))
	}
	switch len(data) {
	case 1:
		binary.BigEndian.PutUint16(out, pairs[uint(data[0])<<4])
		out[2], out[3] = '=', '='
	case 2:
		v := uint32(data[0])<<16 | uint32(data[1])<<8
		binary.BigEndian.PutUint32(out, uint32(pairs[v>>12])<<16|uint32(pairs[v&0xfff]))
		out[3] = '='
	}
	return dst
}
