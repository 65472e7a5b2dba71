package wire

import "fmt"

// AppendArgs appends a as the JSON of an instruction's args. On error dst is
// returned as it was; the error wraps a *MemberError.
func AppendArgs(dst []byte, a Args) ([]byte, error) {
	e := newEncoder(dst, MaxFrameBytes)
	e.check.in = "args."
	switch a := a.(type) {
	case ExecArgs:
		e.text(`{"command":`, a.Command)
	case PathArgs:
		e.text(`{"path":`, a.Path)
	case ReadLinesArgs:
		e.text(`{"path":`, a.Path)
		if a.Offset != nil {
			e.count(`,"offset":`, *a.Offset)
		}
		if a.Limit != nil {
			e.count(`,"limit":`, *a.Limit)
		}
	case WriteArgs:
		e.text(`{"path":`, a.Path)
		e.count(`,"contentLen":`, a.ContentLen)
		e.text(`,"sha256":`, a.SHA256)
		if a.Expect != nil {
			e.expect(a.Expect)
		}
	case DirArgs:
		e.text(`{"path":`, a.Path)
		if a.Recursive != nil {
			e.boolean(`,"recursive":`, *a.Recursive)
		}
	case TempArgs:
		e.raw("{")
		if a.Prefix != "" {
			e.text(`"prefix":`, a.Prefix)
		}
		if a.Suffix != "" {
			if a.Prefix != "" {
				e.raw(",")
			}
			e.text(`"suffix":`, a.Suffix)
		}
	case StatBatchArgs:
		e.texts(`{"paths":`, a.Paths)
	default:
		return dst, fmt.Errorf("encode args: %T is none", a)
	}
	e.raw("}")
	return e.finish("args")
}

func (e *encoder) expect(x *Expect) {
	e.raw(`,"expect":`)
	e.filled(`{"canonicalPath":`, x.CanonicalPath)
	if x.FileID != "" {
		e.text(`,"fileId":`, x.FileID)
	}
	if x.Exclusive {
		e.boolean(`,"exclusive":`, true)
	}
	if x.NoFollow {
		e.boolean(`,"noFollow":`, true)
	}
	e.raw("}")
}
