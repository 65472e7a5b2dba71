package wire

import "slices"

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
