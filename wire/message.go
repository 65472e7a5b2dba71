package wire

import (
	"strings"
	"unicode/utf8"
)

// CutMessage gives the part of s that fits an outcome's message: valid UTF-8,
// at most MaxMessageBytes, ending between two characters. It is applied to
// every Failure that is encoded.
func CutMessage(s string) string {
	s = strings.ToValidUTF8(cutRunes(s), "\uFFFD")
	return cutRunes(s) // the replacement is longer than what it replaces
}

// cutRunes cuts s without parting a character.
func cutRunes(s string) string {
	if len(s) <= MaxMessageBytes {
		return s
	}
	for i := MaxMessageBytes; i > MaxMessageBytes-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:MaxMessageBytes]
}
