package wire

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions here give meaning to the raw text of one value that a scanner
// has passed, and so rely on its being well-formed. Their second result is
// false when the value is of another type than the one asked for.

// memberName is the name at the start of text, unescaped, without quotes.
func memberName(text []byte) []byte {
	for i := 1; ; i++ {
		switch text[i] {
		case '"':
			return text[1:i]
		case '\\':
			s := scanner{text: text}
			s.str()
			return unescape(nil, text[1:s.at-1])
		}
	}
}

// text decodes a string. What is not UTF-8, and a surrogate without its other
// half, becomes U+FFFD: Go strings that leave this package are always UTF-8.
func text(raw []byte) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), true
	}
	return string(unescape(make([]byte, 0, len(inner)), inner)), true
}

// validText is a member's name as a string that is UTF-8.
func validText(name []byte) string { return strings.ToValidUTF8(string(name), "\uFFFD") }

// faithful reports whether text gives a string as it was meant: nothing of it had
// to be replaced by U+FFFD. inner is without its quotes.
func faithful(inner []byte) bool {
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			r, n := utf8.DecodeRune(inner[i:])
			if r == utf8.RuneError && n == 1 {
				return false
			}
			i += n
			continue
		}
		i += 2
		if inner[i-1] != 'u' {
			continue
		}
		r, _ := hex4(inner[i:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 > len(inner) || inner[i] != '\\' || inner[i+1] != 'u' {
			return false
		}
		low, ok := hex4(inner[i+2:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return false
		}
		i += 6
	}
	return true
}

// unescape appends the meaning of a string's inner text.
func unescape(dst, inner []byte) []byte {
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			r, n := utf8.DecodeRune(inner[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		c := inner[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(inner[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if i+6 <= len(inner) && inner[i] == '\\' && inner[i+1] == 'u' {
					low, ok = hex4(inner[i+2:])
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// integer decodes a safe integer, judging the value as JavaScript does and not
// its spelling: 1.0 and 1e0 are 1, and 1.5 is refused.
func integer(raw []byte) (int64, bool) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	if len(raw) <= 15 { // short enough to be safe whatever the digits are
		n, digits := int64(0), raw
		if raw[0] == '-' {
			digits = raw[1:]
		}
		for i, c := range digits {
			if c < '0' || c > '9' {
				break
			}
			n = n*10 + int64(c-'0')
			if i == len(digits)-1 {
				if raw[0] == '-' {
					n = -n
				}
				return n, true
			}
		}
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > MaxSafeInteger {
		return 0, false
	}
	return int64(f), true
}

func boolean(raw []byte) (value, ok bool) {
	return raw[0] == 't', raw[0] == 't' || raw[0] == 'f'
}

func isNull(raw []byte) bool { return raw[0] == 'n' }

// eachMember calls member for each member of an object, as at scanFrame.
func eachMember(raw []byte, member func(name, value []byte)) bool {
	if raw[0] != '{' {
		return false
	}
	s := scanner{text: raw}
	return s.members(member)
}

// eachElement calls element for each value of an array.
func eachElement(raw []byte, element func(value []byte)) bool {
	if raw[0] != '[' {
		return false
	}
	s := scanner{text: raw}
	return s.elements(element)
}
