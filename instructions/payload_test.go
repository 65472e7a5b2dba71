package instructions

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/wire"
)

func TestEveryWrongSequenceFailsAndLeavesNoTrace(t *testing.T) {
	const content = "0123456789"
	begin := func(f func(*wire.Payload)) *wire.Payload {
		p := frames("", content, 4)[0]
		if f != nil {
			f(p)
		}
		return p
	}
	chunk := func(at int64, data string) *wire.Payload {
		return &wire.Payload{Gen: "1", Part: wire.PartChunk, Offset: at, Data: []byte(data)}
	}
	commit := func(f func(*wire.Payload)) *wire.Payload {
		p := begin(f)
		p.Part = wire.PartCommit
		return p
	}
	all := chunk(0, content)
	for name, c := range map[string]struct {
		says   string
		frames []*wire.Payload
	}{
		"gap":                 {"a gap", []*wire.Payload{begin(nil), chunk(0, "0123"), chunk(5, "56789")}},
		"overlap":             {"an overlap", []*wire.Payload{begin(nil), chunk(0, "0123"), chunk(3, "3456789")}},
		"chunk sent twice":    {"an overlap", []*wire.Payload{begin(nil), chunk(0, "0123"), chunk(0, "0123")}},
		"excess":              {"more than", []*wire.Payload{begin(nil), chunk(0, content+"x")}},
		"negative offset":     {"an overlap", []*wire.Payload{begin(nil), chunk(-1, content)}},
		"missing begin":       {"before begin", []*wire.Payload{all}},
		"only a commit":       {"before begin", []*wire.Payload{commit(nil)}},
		"second begin":        {"second begin", []*wire.Payload{begin(nil), chunk(0, "0123"), begin(nil)}},
		"commit too early":    {"4 of 10", []*wire.Payload{begin(nil), chunk(0, "0123"), commit(nil)}},
		"wrong content":       {"SHA-256", []*wire.Payload{begin(nil), chunk(0, "0123456780"), commit(nil)}},
		"begin: other length": {"10", []*wire.Payload{begin(func(p *wire.Payload) { p.TotalLen = 9 })}},
		"begin: other digest": {"SHA-256", []*wire.Payload{begin(func(p *wire.Payload) { p.SHA256 = sum256("other") })}},
		"commit: other length": {"10", []*wire.Payload{begin(nil), all,
			commit(func(p *wire.Payload) { p.TotalLen = 11 })}},
		"commit: other digest": {"SHA-256", []*wire.Payload{begin(nil), all,
			commit(func(p *wire.Payload) { p.SHA256 = sum256("other") })}},
		"sloppy base64": {"dataB64", []*wire.Payload{begin(nil),
			{Gen: "1", Part: wire.PartChunk, Problem: errors.New("dataB64: not canonical")}}},
	} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(d *disk) {
				for _, kind := range []wire.Kind{wire.KindWriteFile, wire.KindWriteFileExclusive, wire.KindAppendFile} {
					id := d.do(kind, wire.WriteArgs{Path: d.dir + "/new/f", ContentLen: int64(len(content)), SHA256: sum256(content)})
					for _, p := range c.frames {
						p := *p
						p.InstructionID = id
						p.Data = bytes.Clone(p.Data)
						d.d.Payload(&p)
					}
					f, ok := d.outcome(id).(wire.Failure)
					if !ok || f.Code != wire.CodeInvalid || !strings.Contains(f.Message, c.says) {
						t.Errorf("%s: %+v, want invalid with %q", kind, f, c.says)
					}
				}
				d.names()
			})
		})
	}
}

func TestContentForAnUnknownInstructionIsIgnored(t *testing.T) {
	onDisk(t, func(d *disk) {
		for _, p := range frames("nobody", "content", 3) {
			d.d.Payload(p)
		}
		d.unanswered("nobody")
		d.names()
	})
}

func TestAFullDiskIsNoSequenceError(t *testing.T) {
	full := errors.New("no space")
	a := newAssembly(wire.WriteArgs{ContentLen: 3, SHA256: sum256("abc")}, failing{full})
	all := frames("", "abc", 3)
	if _, err := a.take(all[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := a.take(all[1]); err != full {
		t.Errorf("%v, want the disk's error", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzAssembly feeds any sequence of frames and compares with what a model says:
// content is whole if and only if the frames are one begin, chunks that together
// are the content, in order, and one commit.
func FuzzAssembly(f *testing.F) {
	f.Add([]byte{0, 1, 4, 1, 9, 2})
	f.Add([]byte{0, 1, 255, 2})
	f.Add([]byte{1, 4, 0, 2})
	f.Add([]byte{0, 0})
	f.Add([]byte{0, 3, 2, 1, 3, 2})
	f.Add([]byte{0, 4, 4, 5})
	const content = "the quick brown fox"
	f.Fuzz(func(t *testing.T, script []byte) {
		var sink bytes.Buffer
		a := newAssembly(wire.WriteArgs{ContentLen: int64(len(content)), SHA256: sum256(content)}, &sink)
		begun, sent, good := false, 0, true // the model
		for len(script) > 0 && good {
			op, arg := script[0], 0
			if len(script) > 1 {
				arg = int(script[1])
			}
			script = script[1:]
			p := frames("", content, 1)[0]
			commit := false
			switch op % 6 {
			case 0: // begin
				good, begun = !begun, true
			case 1: // the next slice
				size := min(arg%8, len(content)-sent)
				*p = wire.Payload{Part: wire.PartChunk, Offset: int64(sent), Data: []byte(content[sent : sent+size])}
				good = begun
				sent += size
			case 2: // commit
				p.Part, commit = wire.PartCommit, true
				good = begun && sent == len(content)
			case 3: // a slice somewhere else
				*p = wire.Payload{Part: wire.PartChunk, Offset: int64(arg), Data: []byte(content[:arg%len(content)])}
				size := len(p.Data)
				good = begun && arg == sent && sent+size <= len(content) && content[sent:sent+size] == string(p.Data)
				if begun && arg == sent && sent+size <= len(content) && !good {
					return // wrong bytes in the right place: the digest's business
				}
				sent += size
			case 4: // a frame that disagrees
				p.TotalLen += int64(arg) + 1
				good = false
			case 5: // a malformed frame
				p.Problem = errors.New("malformed")
				good = false
			}
			whole, err := a.take(p)
			if (err == nil) != good {
				t.Fatalf("frame %+v: %v, the model says %v", p, err, good)
			}
			if _, ok := errors.AsType[sequenceError](err); err != nil && !ok {
				t.Fatalf("%T is not answered invalid: %v", err, err)
			}
			if whole && err == nil {
				if !commit || sink.String() != content {
					t.Fatalf("whole with %q", sink.String())
				}
				return
			}
			if !strings.HasPrefix(content, sink.String()) {
				t.Fatalf("the sink got %q", sink.String())
			}
		}
	})
}
