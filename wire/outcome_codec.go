package wire

import (
	"fmt"
	"slices"
)

const outsideSet = "outside the closed set"

func (e *encoder) outcome(o Outcome) {
	before := e.check.in
	e.check.in = "outcome."
	defer func() { e.check.in = before }()
	switch o := o.(type) {
	case ExecOutcome:
		e.raw(`{"ok":true,"kind":"exec"`)
		e.integer(`,"exitCode":`, o.ExitCode)
		if t := o.Truncated; t != nil {
			e.raw(`,"truncated":`)
			e.boolean(`{"stdout":`, t.Stdout)
			e.boolean(`,"stderr":`, t.Stderr)
			e.raw("}")
		}
	case ReadOutcome:
		e.raw(`{"ok":true,"kind":"read"`)
	case StatOutcome:
		e.stat(o)
	case WriteOutcome:
		e.raw(`{"ok":true,"kind":"write"`)
		e.filled(`,"canonicalPath":`, o.CanonicalPath)
		if o.Inode != "" {
			e.text(`,"inode":`, o.Inode)
		}
		if o.Created != nil {
			e.boolean(`,"created":`, *o.Created)
		}
	case VoidOutcome:
		e.raw(`{"ok":true,"kind":"void"`)
	case CancelledOutcome:
		e.raw(`{"ok":true,"kind":"cancelled"`)
		if !slices.Contains(CancelStates(), o.State) {
			e.fail("state", outsideSet)
		}
		e.text(`,"state":`, string(o.State))
	case Failure:
		e.raw(`{"ok":false`)
		if !slices.Contains(ErrorCodes(), o.Code) {
			e.fail("errorCode", outsideSet)
		}
		e.text(`,"errorCode":`, string(o.Code))
		e.text(`,"message":`, CutMessage(o.Message))
	default:
		e.raw("{")
		e.fail("kind", fmt.Sprintf("%T is no outcome", o))
	}
	e.raw("}")
}

func (e *encoder) stat(o StatOutcome) {
	e.raw(`{"ok":true,"kind":"stat"`)
	if o.Info != nil {
		e.raw(`,"info":`)
		e.fileInfo(o.Info)
	}
	if o.Entries != nil {
		e.raw(`,"entries":[`)
		for i := range o.Entries {
			if e.full() {
				return
			}
			if i > 0 {
				e.raw(",")
			}
			e.fileInfo(&o.Entries[i])
		}
		e.raw("]")
	}
	if o.ExistsValue != nil {
		e.boolean(`,"existsValue":`, *o.ExistsValue)
	}
	if o.CanonicalPath != "" {
		e.text(`,"canonicalPath":`, o.CanonicalPath)
	}
	if t := o.LinkTarget; t != nil && t.IsLink {
		e.text(`,"linkTarget":`, t.Target)
	} else if t != nil {
		e.raw(`,"linkTarget":null`)
	}
}

func (e *encoder) fileInfo(f *FileInfo) {
	e.text(`{"path":`, f.Path)
	if !f.Kind.known() {
		e.fail("kind", outsideSet)
	}
	e.text(`,"kind":`, string(f.Kind))
	e.integer(`,"size":`, f.Size)
	e.integer(`,"mtimeMs":`, f.MtimeMs)
	if f.Mode != nil {
		e.integer(`,"mode":`, *f.Mode)
	}
	e.raw("}")
}

func (k FileKind) known() bool {
	switch k {
	case FileFile, FileDir, FileSymlink, FileOther:
		return true
	}
	return false
}

// outcome decodes the terminal answer of a result. Which outcome fits which
// instruction is not judged here; see Fits.
func (c *check) outcome(raw []byte) Outcome {
	var (
		ok, kind, exitCode, truncated       []byte
		info, entries, exists, path, target []byte
		inode, created                      []byte
		state, errorCode, message           []byte
	)
	c.object("outcome", raw, func(name, value []byte) {
		switch string(name) {
		case "ok":
			ok = value
		case "kind":
			kind = value
		case "exitCode":
			exitCode = value
		case "truncated":
			truncated = value
		case "info":
			info = value
		case "entries":
			entries = value
		case "existsValue":
			exists = value
		case "canonicalPath":
			path = value
		case "linkTarget":
			target = value
		case "inode":
			inode = value
		case "created":
			created = value
		case "state":
			state = value
		case "errorCode":
			errorCode = value
		case "message":
			message = value
		}
	})
	if c.err != nil {
		return nil
	}
	c.in = "outcome."
	defer func() { c.in = "" }()

	if !c.boolean("ok", ok) {
		f := Failure{Code: ErrorCode(c.text("errorCode", errorCode)), Message: c.text("message", message)}
		if !slices.Contains(ErrorCodes(), f.Code) {
			c.fail("errorCode", outsideSet)
		}
		return f
	}
	switch OutcomeKind(c.text("kind", kind)) {
	case OutcomeExec:
		return ExecOutcome{ExitCode: c.integer("exitCode", exitCode), Truncated: maybe("truncated", truncated, c.truncated)}
	case OutcomeRead:
		return ReadOutcome{}
	case OutcomeStat:
		o := StatOutcome{
			Info:        maybe("info", info, c.fileInfo),
			ExistsValue: maybe("existsValue", exists, c.boolean),
			LinkTarget:  maybe("linkTarget", target, c.linkTarget),
		}
		if entries != nil {
			o.Entries = c.fileInfos("entries", entries)
		}
		if path != nil {
			o.CanonicalPath = c.text("canonicalPath", path)
		}
		return o
	case OutcomeWrite:
		o := WriteOutcome{CanonicalPath: c.text("canonicalPath", path), Created: maybe("created", created, c.boolean)}
		if inode != nil {
			o.Inode = c.text("inode", inode)
		}
		return o
	case OutcomeVoid:
		return VoidOutcome{}
	case OutcomeCancelled:
		o := CancelledOutcome{State: CancelState(c.text("state", state))}
		if !slices.Contains(CancelStates(), o.State) {
			c.fail("state", outsideSet)
		}
		return o
	}
	c.fail("kind", outsideSet)
	return nil
}

func (c *check) truncated(member string, raw []byte) (t Truncated) {
	var stdout, stderr []byte
	c.object(member, raw, func(name, value []byte) {
		switch string(name) {
		case "stdout":
			stdout = value
		case "stderr":
			stderr = value
		}
	})
	t.Stdout = c.boolean(member+".stdout", stdout)
	t.Stderr = c.boolean(member+".stderr", stderr)
	return t
}

func (c *check) linkTarget(member string, raw []byte) LinkTarget {
	if isNull(raw) {
		return LinkTarget{}
	}
	return LinkTarget{IsLink: true, Target: c.text(member, raw)}
}

func (c *check) fileInfos(member string, raw []byte) []FileInfo {
	list := []FileInfo{}
	ok := eachElement(raw, func(value []byte) {
		if c.err == nil {
			list = append(list, c.fileInfo(member+"[]", value))
		}
	})
	if !ok {
		c.fail(member, notList)
	}
	return list
}

func (c *check) fileInfo(member string, raw []byte) FileInfo {
	var path, kind, size, mtimeMs, mode []byte
	c.object(member, raw, func(name, value []byte) {
		switch string(name) {
		case "path":
			path = value
		case "kind":
			kind = value
		case "size":
			size = value
		case "mtimeMs":
			mtimeMs = value
		case "mode":
			mode = value
		}
	})
	f := FileInfo{
		Path:    c.text(member+".path", path),
		Kind:    FileKind(c.text(member+".kind", kind)),
		Size:    c.integer(member+".size", size),
		MtimeMs: c.integer(member+".mtimeMs", mtimeMs),
		Mode:    maybe(member+".mode", mode, c.integer),
	}
	if !f.Kind.known() {
		c.fail(member+".kind", outsideSet)
	}
	return f
}
