package wire

// scanner walks JSON text (RFC 8259, which is what JSON.parse takes) without
// building anything from it. It never recurses: nesting costs one bit a level,
// so the deepest text that fits a frame costs 128 KiB and no stack.
type scanner struct {
	text []byte
	at   int
}

// scanFrame checks that text is one JSON object and nothing else, and hands
// each member of it to member: the name without its quotes, unescaped, and the
// raw text of the value. A name that comes twice is handed over twice; the
// caller keeps the later, as JSON.parse does. The reason is "" if all is well.
func scanFrame(text []byte, member func(name, value []byte)) FrameRejectReason {
	s := scanner{text: text}
	s.space()
	isObject := s.peek() == '{'
	if isObject {
		if !s.members(member) {
			return ReasonNotJSON
		}
	} else if !s.value() {
		return ReasonNotJSON
	}
	s.space()
	if s.at != len(text) {
		return ReasonNotJSON
	}
	if !isObject {
		return ReasonNotObject
	}
	return ""
}

// peek is the next byte, or 0 at the end: no JSON token starts with 0.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// members walks the object that starts here, as described at scanFrame.
func (s *scanner) members(member func(name, value []byte)) bool {
	s.at++ // the brace
	s.space()
	if s.peek() == '}' {
		s.at++
		return true
	}
	for {
		start := s.at
		if !s.name() {
			return false
		}
		name := memberName(s.text[start:])
		start = s.at
		if !s.value() {
			return false
		}
		member(name, s.text[start:s.at])
		s.space()
		switch s.peek() {
		case ',':
			s.at++
			s.space()
		case '}':
			s.at++
			return true
		default:
			return false
		}
	}
}

// elements walks the array that starts here and hands over each raw value.
func (s *scanner) elements(element func(value []byte)) bool {
	s.at++ // the bracket
	s.space()
	if s.peek() == ']' {
		s.at++
		return true
	}
	for {
		start := s.at
		if !s.value() {
			return false
		}
		element(s.text[start:s.at])
		s.space()
		switch s.peek() {
		case ',':
			s.at++
			s.space()
		case ']':
			s.at++
			return true
		default:
			return false
		}
	}
}

// name passes a member's name, its colon and the space around them.
func (s *scanner) name() bool {
	if !s.str() {
		return false
	}
	s.space()
	if s.peek() != ':' {
		return false
	}
	s.at++
	s.space()
	return true
}

// value passes one value of any kind and depth.
func (s *scanner) value() bool {
	if c := s.peek(); c != '{' && c != '[' {
		return s.scalar()
	}
	var open nesting
	for {
		if c := s.peek(); c != '{' && c != '[' {
			if !s.scalar() {
				return false
			}
		} else {
			s.at++
			s.space()
			if s.peek() != c+2 { // '}' is '{'+2 and ']' is '['+2
				open.push(c == '{')
				if c == '{' && !s.name() {
					return false
				}
				continue
			}
			s.at++
		}
		// A value has ended: close what ends with it, or go on to the next one.
		for {
			if open.depth == 0 {
				return true
			}
			s.space()
			inObject := open.inObject()
			switch c := s.peek(); {
			case c == '}' && inObject, c == ']' && !inObject:
				s.at++
				open.depth--
				continue
			case c != ',':
				return false
			}
			s.at++
			s.space()
			if inObject && !s.name() {
				return false
			}
			break
		}
	}
}

// scalar passes a value that holds no other.
func (s *scanner) scalar() bool {
	switch s.peek() {
	case '"':
		return s.str()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

// nesting remembers for every open level whether it is an object.
type nesting struct {
	bits  []uint64
	depth int
}

func (n *nesting) push(object bool) {
	if n.depth == 64*len(n.bits) {
		n.bits = append(n.bits, 0)
	}
	word, bit := &n.bits[n.depth/64], uint64(1)<<(n.depth%64)
	if object {
		*word |= bit
	} else {
		*word &^= bit
	}
	n.depth++
}

func (n *nesting) inObject() bool {
	return n.bits[(n.depth-1)/64]>>((n.depth-1)%64)&1 == 1
}
