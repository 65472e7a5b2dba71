package wire

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"strings"
)

// MemberError says which member of a frame or of an instruction's args cannot
// be used, and why.
type MemberError struct {
	Member string // a path such as "outcome.info.size"
	Detail string
}

// Error implements error.
func (e *MemberError) Error() string { return e.Member + ": " + e.Detail }

const (
	missing    = "missing"
	notInteger = "not a safe integer"
	notString  = "not a string"
	notList    = "not a list"
	notObject  = "not an object"
	notBoolean = "not true or false"
	notUnicode = "not Unicode text: half a surrogate pair, or bytes that are not UTF-8"
	outsideSet = "outside the closed set"
)

// check turns raw members into values and keeps the first thing that was wrong.
// Raw text is nil for a member that was absent. Every method gives the zero
// value once something was wrong, so a frame is written down in one go and err
// looked at afterwards.
type check struct {
	in  string // prefix of member names, such as "outcome."
	err *MemberError
}

func (c *check) fail(member, detail string) {
	if c.err == nil {
		c.err = &MemberError{Member: c.in + member, Detail: detail}
	}
}

// problem is err as an error, nil if there is none.
func (c *check) problem() error {
	if c.err == nil {
		return nil
	}
	return c.err
}

func (c *check) have(member string, raw []byte) bool {
	if raw == nil {
		c.fail(member, missing)
	}
	return raw != nil
}

func (c *check) text(member string, raw []byte) string {
	if !c.have(member, raw) {
		return ""
	}
	s, ok := text(raw)
	if !ok {
		c.fail(member, notString)
	}
	return s
}

// exact is a string that names or says what is to be done: nothing of it may have
// been replaced, or something else would be done (§6.6).
func (c *check) exact(member string, raw []byte) string {
	s := c.text(member, raw)
	if s != "" && !faithful(raw[1:len(raw)-1]) {
		c.fail(member, notUnicode)
	}
	return s
}

// filled is a string that is not empty.
func (c *check) filled(member string, raw []byte) string {
	s := c.text(member, raw)
	if s == "" {
		c.fail(member, "empty")
	}
	return s
}

func (c *check) gen(raw []byte) Gen {
	s := c.text("gen", raw)
	g, err := ParseGen(s)
	if err != nil {
		c.fail("gen", err.Error())
	}
	return g
}

// integer is a safe integer.
func (c *check) integer(member string, raw []byte) int64 {
	return c.atLeast(-MaxSafeInteger, member, raw)
}

// count is a safe integer that is not negative.
func (c *check) count(member string, raw []byte) int64 { return c.atLeast(0, member, raw) }

func (c *check) atLeast(least int64, member string, raw []byte) int64 {
	if !c.have(member, raw) {
		return 0
	}
	n, ok := integer(raw)
	if !ok {
		c.fail(member, notInteger)
	} else if n < least {
		c.fail(member, "below "+strconv.FormatInt(least, 10))
	}
	return n
}

// maybe gives where the value that read finds, or nil for an absent member.
func maybe[T any](member string, raw []byte, read func(member string, raw []byte) T) *T {
	if raw == nil {
		return nil
	}
	v := read(member, raw)
	return &v
}

func (c *check) boolean(member string, raw []byte) bool {
	if !c.have(member, raw) {
		return false
	}
	b, ok := boolean(raw)
	if !ok {
		c.fail(member, notBoolean)
	}
	return b
}

// texts is a list of strings; never nil, so that an empty list stays a list.
func (c *check) texts(member string, raw []byte) []string {
	list := []string{}
	if !c.have(member, raw) {
		return list
	}
	ok := eachElement(raw, func(value []byte) {
		s, ok := text(value)
		if !ok {
			c.fail(member+"["+strconv.Itoa(len(list))+"]", notString)
		}
		list = append(list, s)
	})
	if !ok {
		c.fail(member, notList)
	}
	return list
}

// base64 is canonical base64, decoded into memory of its own; never nil.
func (c *check) base64(member string, raw []byte) []byte {
	if !c.have(member, raw) {
		return nil
	}
	if raw[0] != '"' {
		c.fail(member, notString)
		return nil
	}
	inner := raw[1 : len(raw)-1]
	data, err := DecodeBase64([]byte{}, inner)
	if err != nil && bytes.IndexByte(inner, '\\') >= 0 {
		data, err = DecodeBase64([]byte{}, unescape(nil, inner))
	}
	if err != nil {
		c.fail(member, err.Error())
	}
	return data
}

// sha256 is a digest of 64 hex digits in either case, given in lower case.
func (c *check) sha256(member string, raw []byte) string {
	s := c.text(member, raw)
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		c.fail(member, "not 64 hex digits")
	}
	return strings.ToLower(s)
}

// object calls with for each member of an object.
func (c *check) object(member string, raw []byte, with func(name, value []byte)) {
	if c.have(member, raw) && !eachMember(raw, with) {
		c.fail(member, notObject)
	}
}
