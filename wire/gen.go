package wire

import "errors"

// ErrGen reports a generation that is not a canonical decimal string.
var ErrGen = errors.New("generation is not a canonical decimal string")

// Gen is a connection generation: the decimal string a helloAck carried,
// echoed and compared byte for byte, never re-formatted (§1.5). It may exceed
// every machine integer.
type Gen string

// ParseGen accepts "0" and digits without a leading zero; anything else (sign,
// space, fraction, exponent, other digits) is ErrGen.
func ParseGen(s string) (Gen, error) {
	if s == "" || (len(s) > 1 && s[0] == '0') {
		return "", ErrGen
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return "", ErrGen
		}
	}
	return Gen(s), nil
}
