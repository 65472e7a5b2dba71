package wire

import (
	"encoding/json"
	"fmt"
)

// DecodeArgs gives args the type that belongs to kind (§3.1). An error says
// which member cannot be used and how, and means the answer `invalid`. Members
// the kind does not have are ignored. What a value means (a path that is not
// absolute, a prefix with a separator) is for whoever does the work.
func DecodeArgs(kind Kind, raw json.RawMessage) (Args, error) {
	var (
		command, path, offset, limit, contentLen, sha256 []byte
		expect, recursive, prefix, suffix, paths         []byte
	)
	reason := scanFrame(raw, func(name, value []byte) {
		switch string(name) {
		case "command":
			command = value
		case "path":
			path = value
		case "offset":
			offset = value
		case "limit":
			limit = value
		case "contentLen":
			contentLen = value
		case "sha256":
			sha256 = value
		case "expect":
			expect = value
		case "recursive":
			recursive = value
		case "prefix":
			prefix = value
		case "suffix":
			suffix = value
		case "paths":
			paths = value
		}
	})
	var c check
	if len(raw) == 0 {
		c.fail("args", missing)
	} else if reason != "" {
		c.fail("args", notObject)
	}
	if c.err != nil {
		return nil, c.err
	}
	c.in = "args."
	var a Args
	switch kind {
	case KindExec, KindExecStream:
		a = ExecArgs{Command: c.exact("command", command)}
	case KindReadTextFile, KindReadBinaryFile, KindFileInfo, KindListDir, KindCanonicalPath, KindExists, KindReadLink:
		a = PathArgs{Path: c.exact("path", path)}
	case KindReadTextLines:
		a = ReadLinesArgs{
			Path:   c.exact("path", path),
			Offset: maybe("offset", offset, c.count),
			Limit:  maybe("limit", limit, c.count),
		}
	case KindWriteFile, KindWriteFileExclusive, KindWriteFileGuarded, KindAppendFile:
		w := WriteArgs{
			Path:       c.exact("path", path),
			ContentLen: c.count("contentLen", contentLen),
			SHA256:     c.sha256("sha256", sha256),
		}
		if kind == KindWriteFileGuarded {
			w.Expect = maybe("expect", expect, c.expect)
		}
		a = w
	case KindCreateDir, KindRemove:
		a = DirArgs{Path: c.exact("path", path), Recursive: maybe("recursive", recursive, c.boolean)}
	case KindCreateTempDir, KindCreateTempFile:
		var t TempArgs
		if prefix != nil {
			t.Prefix = c.exact("prefix", prefix)
		}
		if suffix != nil && kind == KindCreateTempFile {
			t.Suffix = c.exact("suffix", suffix)
		}
		a = t
	case KindStatBatch:
		a = StatBatchArgs{Paths: c.texts("paths", paths)}
	default:
		return nil, fmt.Errorf("args: no kind %q", kind)
	}
	if c.err != nil {
		return nil, c.err
	}
	return a, nil
}

func (c *check) expect(member string, raw []byte) (e Expect) {
	var path, fileID, exclusive, noFollow []byte
	c.object(member, raw, func(name, value []byte) {
		switch string(name) {
		case "canonicalPath":
			path = value
		case "fileId":
			fileID = value
		case "exclusive":
			exclusive = value
		case "noFollow":
			noFollow = value
		}
	})
	e.CanonicalPath = c.filled(member+".canonicalPath", path)
	c.exact(member+".canonicalPath", path)
	// Every guard that is there must be understood: one that was dropped would
	// let through the write it was meant to stop.
	if fileID != nil {
		e.FileID = c.filled(member+".fileId", fileID)
	}
	if exclusive != nil {
		e.Exclusive = c.boolean(member+".exclusive", exclusive)
	}
	if noFollow != nil {
		e.NoFollow = c.boolean(member+".noFollow", noFollow)
	}
	return e
}
