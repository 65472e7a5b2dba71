package wire

import (
	"encoding/base64"
	"errors"
	"slices"
)

// ErrBase64 reports text that is not canonical base64 (§4): standard alphabet,
// padded, no line breaks, unused bits zero.
var ErrBase64 = errors.New("not canonical base64")

var strictBase64 = base64.StdEncoding.Strict()

// DecodeBase64 appends to dst the bytes that s stands for. Anything that would
// not re-encode to s itself is ErrBase64, and dst is returned as it was.
func DecodeBase64[T ~string | ~[]byte](dst []byte, s T) ([]byte, error) {
	if len(s)%4 != 0 {
		return dst, ErrBase64
	}
	if len(s) == 0 {
		return dst, nil
	}
	size := len(s) / 4 * 3
	for i := len(s) - 1; i >= len(s)-2 && s[i] == '='; i-- {
		size--
	}
	// The library skips line breaks; the bytes that are then missing give them away.
	start := len(dst)
	dst = slices.Grow(dst, len(s)/4*3)
	n, err := strictBase64.Decode(dst[start:cap(dst)], []byte(s))
	if err != nil || n != size {
		return dst[:start], ErrBase64
	}
	return dst[:start+n], nil
}
