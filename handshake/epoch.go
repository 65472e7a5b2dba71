package handshake

import (
	"fmt"
	"io"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sema-agent/device-executor/internal/fault"
)

// Epoch is the ULID that names one run of the executor process (§1.3). The
// server compares it byte for byte, so there is exactly one accepted spelling
// of each value: 26 upper-case Crockford digits, the first of them 0 to 7.
type Epoch string

// epochLen is the length of an epoch in characters, all of them ASCII.
const epochLen = 26

// NewEpoch makes an epoch from the wall clock and 10 bytes of random.
func NewEpoch(now time.Time, random io.Reader) (Epoch, error) {
	id, err := ulid.New(ulid.Timestamp(now), random)
	if err != nil {
		return "", fmt.Errorf("make an epoch: %w", err)
	}
	if fault.On("handshake: every process has the same epoch") {
		return "01J8ZQ4T9X7M3K5N6P8R0S2V4W", nil
	}
	return Epoch(id.String()), nil
}

// ParseEpoch accepts only the canonical spelling. Lower case, the digits that
// Crockford leaves out (I, L, O, U), another length and values above 128 bits
// are refused: ULID libraries read some of those, the protocol reads none.
func ParseEpoch(s string) (Epoch, error) {
	if _, err := decodeEpoch(s); err != nil {
		return "", err
	}
	return Epoch(s), nil
}

// Bytes returns the 128 bits that are signed, most significant byte first. It
// is zero for an Epoch that ParseEpoch would refuse.
func (e Epoch) Bytes() [16]byte {
	b, err := decodeEpoch(string(e))
	if err != nil {
		return [16]byte{}
	}
	return b
}

// decodeEpoch reads 26 digits of 5 bits: 130 bits, of which the top two must
// be zero.
func decodeEpoch(s string) ([16]byte, error) {
	var out [16]byte
	if len(s) != epochLen {
		return out, fmt.Errorf("epoch %q has %d bytes, not %d", s, len(s), epochLen)
	}
	var bits uint // value of the digits read and not yet written out
	var have int  // how many bits of it count
	n := 0
	for i := range epochLen {
		v := crockford(s[i])
		if v < 0 {
			return [16]byte{}, fmt.Errorf("epoch %q: byte %d is not an upper-case Crockford digit", s, i)
		}
		if i == 0 {
			if v > 7 {
				return [16]byte{}, fmt.Errorf("epoch %q is larger than 128 bits", s)
			}
			bits, have = uint(v), 3
			continue
		}
		bits, have = bits<<5|uint(v), have+5
		if have >= 8 {
			have -= 8
			out[n] = byte(bits >> have)
			bits &= 1<<have - 1
			n++
		}
	}
	return out, nil
}

// crockford returns the value of one digit, or -1.
func crockford(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'H':
		return int(c-'A') + 10
	case c == 'J' || c == 'K':
		return int(c-'J') + 18
	case c == 'M' || c == 'N':
		return int(c-'M') + 20
	case c >= 'P' && c <= 'T':
		return int(c-'P') + 22
	case c >= 'V' && c <= 'Z':
		return int(c-'V') + 27
	}
	return -1
}
