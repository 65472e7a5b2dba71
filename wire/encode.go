package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// encoder appends one frame to dst and refuses values that the other side
// would refuse. Each method takes a key, the text between two values such as
// `,"gen":`, so that the shape of a frame can be read in one place; the member's
// name in an error is taken from it.
type encoder struct {
	dst   []byte
	start int // where the frame begins in dst
	limit int // bytes
	check check
}

func newEncoder(dst []byte, limit int) encoder {
	return encoder{dst: dst, start: len(dst), limit: limit}
}

// finish gives the frame, or dst as it was before and the reason.
func (e *encoder) finish(frame string) ([]byte, error) {
	switch size := len(e.dst) - e.start; {
	case e.check.err != nil:
		return e.dst[:e.start], fmt.Errorf("encode %s: %w", frame, e.check.err)
	case size > e.limit:
		return e.dst[:e.start], &SizeError{Frame: frame, Size: size, Limit: e.limit}
	}
	return e.dst, nil
}

// full reports that the frame is too large already, so that long lists need
// not be encoded to their end.
func (e *encoder) full() bool { return len(e.dst)-e.start > e.limit }

func (e *encoder) fail(key, detail string) { e.check.fail(strings.Trim(key, `{,":`), detail) }

func (e *encoder) raw(s string) { e.dst = append(e.dst, s...) }

func (e *encoder) text(key, s string) {
	e.raw(key)
	e.dst = appendString(e.dst, s)
}

// filled is a string that must not be empty.
func (e *encoder) filled(key, s string) {
	if s == "" {
		e.fail(key, "empty")
	}
	e.text(key, s)
}

func (e *encoder) gen(g Gen) {
	const key = `,"gen":`
	if _, err := ParseGen(string(g)); err != nil {
		e.fail(key, err.Error())
	}
	e.text(key, string(g))
}

// integer is a safe integer.
func (e *encoder) integer(key string, n int64) { e.atLeast(-MaxSafeInteger, key, n) }

// count is a safe integer that is not negative.
func (e *encoder) count(key string, n int64) { e.atLeast(0, key, n) }

func (e *encoder) atLeast(least int64, key string, n int64) {
	if n < least || n > MaxSafeInteger {
		e.fail(key, strconv.FormatInt(n, 10)+" is out of range")
	}
	e.raw(key)
	e.dst = strconv.AppendInt(e.dst, n, 10)
}

func (e *encoder) boolean(key string, b bool) {
	e.raw(key)
	e.dst = strconv.AppendBool(e.dst, b)
}

// texts is a list of strings; nil is an empty list.
func (e *encoder) texts(key string, list []string) {
	e.raw(key)
	e.raw("[")
	for i, s := range list {
		if e.full() {
			return
		}
		if i > 0 {
			e.raw(",")
		}
		e.dst = appendString(e.dst, s)
	}
	e.raw("]")
}

func (e *encoder) base64(key string, data []byte) {
	e.raw(key)
	e.raw(`"`)
	e.dst = appendBase64(e.dst, data)
	e.raw(`"`)
}
