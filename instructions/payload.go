package instructions

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// assembly puts the content of one write together from its payload frames (§3.4):
// one begin that says what the arguments say, chunks of any size that follow each
// other without a gap or an overlap, one commit. Bytes go on to the sink as they
// come; what is kept is a hash and a count.
type assembly struct {
	want   wire.WriteArgs
	sink   io.Writer
	hash   hash.Hash
	length int64
	begun  bool
}

func newAssembly(want wire.WriteArgs, sink io.Writer) *assembly {
	return &assembly{want: want, sink: sink, hash: sha256.New()}
}

// sequenceError is content that does not add up. It is answered `invalid`.
type sequenceError string

// Error implements error.
func (e sequenceError) Error() string { return string(e) }

func wrong(format string, args ...any) error { return sequenceError(fmt.Sprintf(format, args...)) }

// take checks one frame and passes its bytes on; whole is said of a commit that
// found everything right. After an error, or after whole, there is no next frame.
func (a *assembly) take(p *wire.Payload) (whole bool, err error) {
	if p.Problem != nil {
		return false, wrong("a malformed %s frame: %v", p.Part, p.Problem)
	}
	switch p.Part {
	case wire.PartBegin:
		if a.begun {
			return false, wrong("a second begin after %d bytes", a.length)
		}
		a.begun = true
		return false, a.agree(p)
	case wire.PartChunk:
		return false, a.chunk(p)
	case wire.PartCommit:
		return true, a.commit(p)
	}
	return false, wrong("an unknown part %q", p.Part)
}

// agree holds begin and commit to the arguments.
func (a *assembly) agree(p *wire.Payload) error {
	if p.TotalLen != a.want.ContentLen {
		return wrong("%s says %d bytes, the arguments say %d", p.Part, p.TotalLen, a.want.ContentLen)
	}
	if p.SHA256 != a.want.SHA256 {
		return wrong("%s says SHA-256 %s, the arguments say %s", p.Part, p.SHA256, a.want.SHA256)
	}
	return nil
}

func (a *assembly) chunk(p *wire.Payload) error {
	switch {
	case !a.begun:
		return wrong("a chunk before begin")
	case p.Offset > a.length:
		return wrong("a gap: %d bytes so far, the next chunk is for offset %d", a.length, p.Offset)
	case p.Offset < a.length:
		return wrong("an overlap: %d bytes so far, the next chunk is for offset %d", a.length, p.Offset)
	case int64(len(p.Data)) > a.want.ContentLen-a.length:
		return wrong("more than the %d bytes announced: %d", a.want.ContentLen, a.length+int64(len(p.Data)))
	}
	a.hash.Write(p.Data)
	a.length += int64(len(p.Data))
	_, err := a.sink.Write(p.Data)
	return err
}

func (a *assembly) commit(p *wire.Payload) error {
	if !a.begun {
		return wrong("a commit before begin")
	}
	if err := a.agree(p); err != nil {
		return err
	}
	if a.length != a.want.ContentLen {
		return wrong("commit after %d of %d bytes", a.length, a.want.ContentLen)
	}
	if got := hex.EncodeToString(a.hash.Sum(nil)); got != a.want.SHA256 && !fault.On("instructions: content is placed unverified") {
		return wrong("the content has SHA-256 %s, not %s as announced", got, a.want.SHA256)
	}
	return nil
}
