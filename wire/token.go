package wire

import "encoding/binary"

// The tokens of JSON text. Each method passes one that starts here and reports
// whether it is well-formed; if it is not, the whole text is not JSON.

func (s *scanner) word(w string) bool {
	if len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return false
		}
	}
	return true
}

// digits passes one digit or more.
func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

// str passes a string with its quotes. Most of a busy connection's bytes are
// long strings, so it looks at 32 bytes at a time, then at eight.
func (s *scanner) str() bool {
	if s.peek() != '"' {
		return false
	}
	i := s.at + 1
	for {
		for ; i+32 <= len(s.text); i += 32 {
			b := s.text[i : i+32]
			if special(b)|special(b[8:])|special(b[16:])|special(b[24:]) != 0 {
				break
			}
		}
		for i+8 <= len(s.text) && special(s.text[i:]) == 0 {
			i += 8
		}
		if i >= len(s.text) {
			return false
		}
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return true
		case c < ' ':
			return false
		case c != '\\':
			i++
			continue
		}
		if i+1 >= len(s.text) {
			return false
		}
		switch s.text[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if _, ok := hex4(s.text[i+2:]); !ok {
				return false
			}
			i += 6
		default:
			return false
		}
	}
}

// special is 0 when none of the first eight bytes of b is a quote, a backslash
// or a control character.
func special(b []byte) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	w := binary.LittleEndian.Uint64(b)
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	// The lowest top bit that a term leaves set marks a byte it looks for.
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & tops
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
