package files

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// Info says what is at a path; a link is a link.
func (l *Layer) Info(p string) (wire.FileInfo, error) {
	const op = "look at"
	clean, err := checkPath(op, p)
	if err != nil {
		return wire.FileInfo{}, err
	}
	dir, name, err := l.folderOf(op, clean)
	if err != nil {
		return wire.FileInfo{}, err
	}
	defer dir.Close()
	if fault.On("files: fileInfo follows links") {
		if o, err := l.object(op, clean); err == nil {
			defer o.Close()
			return info(p, o.Stat), nil
		}
	}
	st, err := posix.StatAt(dir.FD, name)
	if err != nil {
		return wire.FileInfo{}, posix.Wrap(op, p, err)
	}
	return info(p, st), nil
}

func info(p string, st posix.Stat) wire.FileInfo {
	mode := int64(st.Perm())
	ms := st.MtimeNs / 1e6
	if st.MtimeNs%1e6 < 0 {
		ms-- // before 1970, too, the earlier millisecond
	}
	return wire.FileInfo{Path: p, Kind: st.Kind(), Size: st.Size, MtimeMs: ms, Mode: &mode}
}

// Exists reports whether anything is at a path, a dangling link included. False is
// said only where the system says that nothing is there.
func (l *Layer) Exists(p string) (bool, error) {
	_, err := l.Info(p)
	if err == nil || fault.On("files: exists guesses") {
		return true, nil
	}
	if posix.CodeOf(err) == wire.CodeNotFound {
		return false, nil
	}
	return false, err
}

// Canonical is the real path of what a path leads to.
func (l *Layer) Canonical(p string) (string, error) {
	const op = "find the real path of"
	clean, err := checkPath(op, p)
	if err != nil {
		return "", err
	}
	if fault.On("files: canonicalPath is lexical") {
		return clean, nil
	}
	o, real, err := l.objectAndPath(op, clean)
	if err != nil {
		return "", err
	}
	o.Close()
	return real, tellable(op, p, real)
}

// tellable refuses a real path that an answer cannot carry: in its place it would
// name something else.
func tellable(op, p, real string) error {
	if utf8.ValidString(real) {
		return nil
	}
	return posix.Refuse(wire.CodeUnknown, op, p, "the real path %q is not UTF-8 and cannot be told", real)
}

// Readlink reads one hop of a link, verbatim.
func (l *Layer) Readlink(p string) (wire.LinkTarget, error) {
	const op = "read the link"
	clean, err := checkPath(op, p)
	if err != nil {
		return wire.LinkTarget{}, err
	}
	dir, name, err := l.folderOf(op, clean)
	if err != nil {
		return wire.LinkTarget{}, err
	}
	defer dir.Close()
	target, err := posix.Readlink(dir.FD, name)
	if err == nil && fault.On("files: readLink resolves the whole chain") {
		target, err = l.Canonical(p)
	}
	if errors.Is(err, unix.EINVAL) {
		return wire.LinkTarget{}, nil
	}
	if err != nil {
		return wire.LinkTarget{}, posix.Wrap(op, p, err)
	}
	if !utf8.ValidString(target) {
		return wire.LinkTarget{}, posix.Refuse(wire.CodeUnknown, op, p, "its target %q is not UTF-8 and cannot be told", target)
	}
	return wire.LinkTarget{IsLink: true, Target: target}, nil
}

// leastEntry is the fewest bytes that an entry of a list takes in a frame, besides
// its path.
const leastEntry = len(`{"path":"","kind":"dir","size":0,"mtimeMs":0,"mode":0},`)

// List says what is in a folder, sorted by name. It is all of it or an error: a
// name that is not UTF-8, or more than a frame can carry, fails. Memory is bounded
// by the size of a frame.
func (l *Layer) List(ctx context.Context, p string) ([]wire.FileInfo, error) {
	const op = "list"
	clean, err := checkPath(op, p)
	if err != nil {
		return nil, err
	}
	dir, err := l.object(op, clean)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if dir.Kind() != wire.FileDir {
		return nil, posix.Wrap(op, p, unix.ENOTDIR)
	}
	if dir.FD < 0 { // what may not even be searched can be looked at only
		return nil, posix.Wrap(op, p, unix.EACCES)
	}
	prefix := strings.TrimRight(clean, "/") + "/"

	var names []string
	var bad *string
	count, least := 0, 0
	err = posix.Names(l.calls, dir.FD, func(name string) bool {
		count++
		least += leastEntry + len(prefix) + len(name)
		if bad == nil && !utf8.ValidString(name) {
			bad = &name
		}
		if least <= wire.MaxFrameBytes {
			names = append(names, name)
		}
		return ctx.Err() == nil
	})
	switch {
	case err != nil:
		return nil, posix.Wrap(op, p, err)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case bad != nil:
		return nil, posix.Refuse(wire.CodeUnknown, op, p, "it holds a name that is not UTF-8 and cannot be told: %q", *bad)
	case least > wire.MaxFrameBytes:
		return nil, posix.Refuse(wire.CodeUnknown, op, p, "its %d entries are more than one answer of %d bytes can carry", count, wire.MaxFrameBytes)
	}
	slices.Sort(names)
	entries := make([]wire.FileInfo, 0, len(names))
	for _, name := range names {
		if strings.HasPrefix(name, ".") && fault.On("files: a list leaves out what is hidden") {
			continue
		}
		st, err := posix.StatAt(dir.FD, name)
		if os.IsNotExist(err) {
			continue // gone meanwhile
		}
		if err != nil {
			return nil, posix.Wrap(op, prefix+name, err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		entries = append(entries, info(prefix+name, st))
	}
	return entries, nil
}
