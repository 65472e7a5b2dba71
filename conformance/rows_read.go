package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var readRows = []Row{
	{ID: "read-exact", Section: "§3.1", Promise: "the read family sends the file's bytes as data chunks, and no exit chunk", run: readExact},
	{ID: "read-lines", Section: "§3.1, §8", Promise: "readTextLines sends at most limit lines", run: readLines},
	{ID: "read-fresh", Section: "§5.4, §6.7", Promise: "no answer comes from a cache: every instruction looks again", run: readFresh},
	{ID: "error-codes", Section: "§3.3", Promise: "not_found, is_directory and not_directory say what was met", run: errorCodes},
	{ID: "exists-truth", Section: "§6.5", Promise: "exists is true for what is there and false only for what is not", run: existsTruth},
	{ID: "canonical-truth", Section: "§3.6, §6.5", Promise: "canonicalPath is the real path, through every link, and not_found where there is none", run: canonicalTruth},
	{ID: "fileinfo-truth", Section: "§3.3, §6.5", Promise: "fileInfo tells kind, size and time as they are", run: fileInfoTruth},
	{ID: "readlink-truth", Section: "§3.1, §6.5", Promise: "readLink gives one hop verbatim, and null, or invalid, for what is no link", Needs: []wire.Kind{wire.KindReadLink}, run: readLinkTruth},
	{ID: "listdir-truth", Section: "§3.1", Promise: "listDir names every entry once, and an empty folder has none", run: listDirTruth},
	{ID: "listdir-huge", Section: "§2.1, §2.4", Promise: "an answer that cannot fit a frame costs a failure, never the connection", run: listDirHuge},
}

// noise is content that no two rows share and that does not compress.
func noise(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

func readExact(c *Case) {
	c.begin(refserver.Config{})
	for name, content := range map[string][]byte{
		"empty": {}, "one": {0}, "text": []byte("no newline at the end"), "crlf": []byte("a\r\nb\r\n\n"),
		"not-utf8": {0xff, 0xfe, 0, 0xc3, 0x28}, "large": noise(1<<20+17, 1),
	} {
		path := c.write(c.path(name), string(content))
		for _, kind := range []wire.Kind{wire.KindReadTextFile, wire.KindReadTextLines, wire.KindReadBinaryFile} {
			d := on(kind, path)
			if kind == wire.KindReadTextLines {
				d.Args = wire.ReadLinesArgs{Path: path}
			}
			d.AckDelivered = true
			a := c.do(d)
			c.succeeded(fmt.Sprintf("%s of %s", kind, name), a)
			same := bytes.Equal(a.data, content)
			if kind == wire.KindReadTextLines { // it sends lines, and may leave out the end of the last
				same = same || bytes.Equal(a.data, bytes.TrimSuffix(content, []byte("\n")))
			}
			c.expect(same, "%s of the file %q: %d bytes came, not the %d of the file, or others", kind, name, len(a.data), len(content))
			c.expect(a.Stream.Exits == 0, "%s of the file %q ended with an exit chunk, which only commands have", kind, name)
		}
	}
}

func readLines(c *Case) {
	c.begin(refserver.Config{})
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	path := c.write(c.path("lines"), text.String())
	for _, limit := range []int64{0, 1, 3, 4999, 5000, 6000} {
		a := c.do(refserver.Dispatch{Kind: wire.KindReadTextLines, Args: wire.ReadLinesArgs{Path: path, Limit: &limit}})
		c.succeeded(fmt.Sprintf("readTextLines with limit %d", limit), a)
		all := strings.SplitAfter(text.String(), "\n")
		want := strings.Join(all[:min(int(limit), 5000)], "")
		got := string(a.data)
		c.expect(got == want || got+"\n" == want, "a file of 5000 lines, limit %d: %d bytes came, expected %d", limit, len(got), len(want))
	}
}

func readFresh(c *Case) {
	c.begin(refserver.Config{})
	path := c.path("changing")
	for i := range 4 {
		text := fmt.Sprintf("version %d", i)
		c.write(path, text)
		for _, kind := range []wire.Kind{wire.KindReadTextFile, wire.KindReadBinaryFile} {
			c.expect(string(c.do(on(kind, path)).data) == text, "%s answered with an older version", kind)
		}
		a := c.do(run("cat changing"))
		c.expect(string(a.stdout) == text, "the same command answered with an older version")
		a = c.do(on(wire.KindExists, c.path(text)))
		c.expect(boolOf(a) == "false", "a path where nothing is: expected existsValue false, got %s", tell(a))
		c.write(c.path(text), "")
		a = c.do(on(wire.KindExists, c.path(text)))
		c.expect(boolOf(a) == "true", "the same path, where a file is by now: expected existsValue true, got %s", tell(a))
		c.must(os.RemoveAll(c.path("link")))
		c.must(os.Symlink(text, c.path("link")))
		a = c.do(on(wire.KindCanonicalPath, c.path("link")))
		st, ok := a.Outcome.(wire.StatOutcome)
		c.expect(ok && st.CanonicalPath == c.path(text), "canonicalPath of a link that leads elsewhere by now: got %s", tell(a))
		c.write(c.path("growing"), strings.Repeat("x", i))
		a = c.do(on(wire.KindFileInfo, c.path("growing")))
		c.expect(infoOf(a).Size == int64(i), "fileInfo of a file of %d bytes by now: got %s", i, tell(a))
		a = c.do(on(wire.KindListDir, c.place.workspace))
		st, ok = a.Outcome.(wire.StatOutcome)
		c.expect(ok && slices.ContainsFunc(st.Entries, func(e wire.FileInfo) bool { return e.Path == c.path(text) }), "listDir does not name a file that is there by now")
	}
}

// boolOf is existsValue in a word.
func boolOf(a answer) string {
	st, ok := a.Outcome.(wire.StatOutcome)
	if !ok || st.ExistsValue == nil {
		return "none"
	}
	return fmt.Sprint(*st.ExistsValue)
}

func errorCodes(c *Case) {
	c.begin(refserver.Config{})
	file := c.write(c.path("file"), "content")
	dir, missing := c.path("dir"), c.path("missing")
	c.must(os.Mkdir(dir, 0o755))
	for _, kind := range []wire.Kind{wire.KindReadTextFile, wire.KindReadTextLines, wire.KindReadBinaryFile} {
		c.failed(string(kind)+" of what is missing", c.do(on(kind, missing)), wire.CodeNotFound)
		c.failed(string(kind)+" of a folder", c.do(on(kind, dir)), wire.CodeIsDirectory)
	}
	c.failed("fileInfo of what is missing", c.do(on(wire.KindFileInfo, missing)), wire.CodeNotFound)
	c.failed("canonicalPath of what is missing", c.do(on(wire.KindCanonicalPath, missing)), wire.CodeNotFound)
	c.failed("listDir of what is missing", c.do(on(wire.KindListDir, missing)), wire.CodeNotFound)
	c.failed("listDir of a file", c.do(on(wire.KindListDir, file)), wire.CodeNotDirectory)
	c.failed("writeFile over a folder", c.do(put(wire.KindWriteFile, dir, []byte("x"))), wire.CodeIsDirectory)
	c.failed("remove of what is missing", c.do(refserver.Dispatch{Kind: wire.KindRemove, Args: wire.DirArgs{Path: missing}}), wire.CodeNotFound)
	c.failed("reading through a file", c.do(on(wire.KindReadTextFile, filepath.Join(file, "below"))), wire.CodeNotDirectory, wire.CodeNotFound)
	c.expect(c.read(file) == "content", "a file was changed")
}

func existsTruth(c *Case) {
	c.begin(refserver.Config{})
	file := c.write(c.path("file"), "x")
	c.must(os.Symlink(file, c.path("link")))
	c.must(os.Mkdir(c.path("dir"), 0o755))
	for path, want := range map[string]string{"file": "true", "link": "true", "dir": "true", "none": "false", "dir/none": "false", "no/such/parent": "false"} {
		a := c.do(on(wire.KindExists, c.path(path)))
		c.expect(boolOf(a) == want, "exists of %s in the workspace: expected existsValue %s, got %s", path, want, tell(a))
	}
	c.must(os.Symlink("loop", c.path("loop")))
	a := c.do(on(wire.KindExists, c.path("loop", "below")))
	c.expect(boolOf(a) != "true", "exists below a loop of links: expected false or a failure, got %s", tell(a))
	long := c.path(strings.Repeat("n", 300))
	a = c.do(on(wire.KindExists, long))
	c.expect(boolOf(a) != "true", "exists of a name of 300 bytes: expected false or a failure, got %s", tell(a))
	// What is there and cannot be looked at by this path, as it is longer than the
	// system takes: false would be an answer made up.
	deep := c.deepFile()
	a = c.do(on(wire.KindExists, deep))
	c.expect(boolOf(a) != "false", "exists of a file that is there, by a path of %d bytes: expected true or a failure, as §6.5 has it for what cannot be looked at, got %s", len(deep), tell(a))
	if os.Geteuid() == 0 {
		c.note("this runs as root, to whom no folder is closed: whether permission_denied is answered")
		return
	}
	c.write(c.path("closed", "file"), "x")
	c.must(os.Chmod(c.path("closed"), 0))
	for _, kind := range []wire.Kind{wire.KindExists, wire.KindFileInfo, wire.KindCanonicalPath, wire.KindReadTextFile} {
		c.failed(string(kind)+" in a folder that may not be entered", c.do(on(kind, c.path("closed", "file"))), wire.CodePermissionDenied)
	}
	c.must(os.Chmod(c.path("closed"), 0o755))
}

// deepFile makes a file whose path is longer than any that the system takes.
func (c *Case) deepFile() string {
	const longest = 4096 // of Linux, and more than others'
	name := strings.Repeat("d", 200)
	at, err := os.OpenRoot(c.place.workspace)
	c.must(err)
	defer func() { _ = at.Close() }()
	path := c.place.workspace
	for len(path) <= longest {
		path += "/" + name
		c.must(at.Mkdir(name, 0o755))
		below, err := at.OpenRoot(name)
		c.must(err)
		_ = at.Close()
		at = below
	}
	c.must(at.WriteFile("file", []byte("x"), 0o644))
	return path + "/file"
}

func canonicalTruth(c *Case) {
	c.begin(refserver.Config{})
	file := c.write(c.path("real", "deep", "file"), "x")
	c.must(os.Symlink("real", c.path("rel")))
	c.must(os.Symlink(c.path("rel", "deep"), c.path("abs")))
	c.must(os.Symlink("../abs/file", c.path("real", "last")))
	c.must(os.Symlink("nowhere", c.path("dangling")))
	for path, want := range map[string]string{
		"real/deep/file": file, "rel/deep/file": file, "abs/file": file, "real/last": file, "abs": filepath.Dir(file), "real": c.path("real"),
	} {
		a := c.do(on(wire.KindCanonicalPath, c.path(path)))
		st, ok := a.Outcome.(wire.StatOutcome)
		c.expect(ok && st.CanonicalPath == want, "canonicalPath of %s in the workspace: expected %s, got %s", path, want, tell(a))
	}
	c.failed("canonicalPath of a link to nothing", c.do(on(wire.KindCanonicalPath, c.path("dangling"))), wire.CodeNotFound)
}

func infoOf(a answer) wire.FileInfo {
	if st, ok := a.Outcome.(wire.StatOutcome); ok && st.Info != nil {
		return *st.Info
	}
	return wire.FileInfo{}
}

func fileInfoTruth(c *Case) {
	c.begin(refserver.Config{})
	file := c.write(c.path("file"), "twelve bytes")
	at := time.UnixMilli(1_600_000_123_456).Add(300 * time.Microsecond) // so that floats do not matter
	c.must(os.Chtimes(file, at, at))
	kept, err := os.Stat(file) // a file system may keep less
	c.must(err)
	c.must(os.Chmod(file, 0o640))
	c.must(os.Mkdir(c.path("dir"), 0o755))
	c.must(os.Symlink("file", c.path("link")))
	a := c.do(on(wire.KindFileInfo, file))
	i := infoOf(a)
	c.expect(i.Kind == wire.FileFile && i.Size == 12, "a file of 12 bytes: expected kind file and size 12, got %s", tell(a))
	off := i.MtimeMs - kept.ModTime().UnixMilli()
	c.expect(off == 0 || off == 1, "a file that was changed at %d ms since 1970: mtimeMs is %d; expected is that, cut or rounded to a millisecond", kept.ModTime().UnixMilli(), i.MtimeMs)
	c.expect(i.Mode == nil || *i.Mode&0o777 == 0o640, "a file of mode 0640: its mode is %d, in octal %o; expected 416, or none", deref(i.Mode), deref(i.Mode))
	c.expect(i.Path == file, "path is %q; expected the path that was asked for, %q", i.Path, file)
	a = c.do(on(wire.KindFileInfo, c.path("dir")))
	c.expect(infoOf(a).Kind == wire.FileDir, "a folder: expected kind dir, got %s", tell(a))
	a = c.do(on(wire.KindFileInfo, c.path("link")))
	c.expect(infoOf(a).Kind == wire.FileSymlink, "a link, which is not to be followed helpfully (§6.5): expected kind symlink, got %s", tell(a))
	a = c.do(on(wire.KindFileInfo, "/dev/null"))
	c.expect(infoOf(a).Kind == wire.FileOther, "/dev/null: expected kind other, got %s", tell(a))
}

func deref(p *int64) int64 {
	if p == nil {
		return -1
	}
	return *p
}

func readLinkTruth(c *Case) {
	c.begin(refserver.Config{})
	c.write(c.path("file"), "x")
	for name, target := range map[string]string{"one": "file", "hop": "one", "odd": "./../workspace/./file", "gone": "/no/such/place"} {
		c.must(os.Symlink(target, c.path(name)))
		a := c.do(on(wire.KindReadLink, c.path(name)))
		st, ok := a.Outcome.(wire.StatOutcome)
		c.expect(ok && st.LinkTarget != nil && st.LinkTarget.IsLink && st.LinkTarget.Target == target, "the link %s leads to %q: expected that as linkTarget, got %s", name, target, tell(a))
	}
	a := c.do(on(wire.KindReadLink, c.path("file")))
	if _, failed := a.Outcome.(wire.Failure); failed { // §3.1 has null for it, §3.3 this
		c.failed("readLink of what is no link", a, wire.CodeInvalid)
	} else {
		st, ok := a.Outcome.(wire.StatOutcome)
		c.expect(ok && st.LinkTarget != nil && !st.LinkTarget.IsLink, "readLink of what is no link: expected linkTarget null, got %s", tell(a))
	}
	c.failed("readLink of what is missing", c.do(on(wire.KindReadLink, c.path("missing"))), wire.CodeNotFound)
}

func listDirTruth(c *Case) {
	c.begin(refserver.Config{})
	dir := c.path("dir")
	c.must(os.Mkdir(dir, 0o755))
	a := c.do(on(wire.KindListDir, dir))
	st, ok := a.Outcome.(wire.StatOutcome)
	c.expect(ok && st.Entries != nil && len(st.Entries) == 0, "an empty folder: expected entries to be [], got %s", tell(a))
	names := []string{".hidden", "a b", "file", "sub", "zu\u0308rich", "link"}
	for _, n := range names[:3] {
		c.write(filepath.Join(dir, n), n)
	}
	c.write(filepath.Join(dir, names[4]), "")
	c.must(os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	c.must(os.Symlink("nowhere", filepath.Join(dir, "link")))
	a = c.do(on(wire.KindListDir, dir))
	st, _ = a.Outcome.(wire.StatOutcome)
	var got []string
	kinds := map[string]wire.FileKind{}
	for _, e := range st.Entries {
		name := filepath.Base(e.Path)
		got = append(got, name)
		kinds[name] = e.Kind
		whole := filepath.Join(dir, name)
		if !c.expect(e.Path == whole, "an entry's path is %q; expected the folder's path and the entry's name, %q (§3.3)", e.Path, whole) {
			continue
		}
		info, err := os.Lstat(e.Path)
		if !c.expect(err == nil, "the entry %q is named, and is not there", e.Path) {
			continue
		}
		c.expect(!info.Mode().IsRegular() || info.Size() == e.Size, "%s: size is %d, expected %d", name, e.Size, info.Size())
		off := e.MtimeMs - info.ModTime().UnixMilli()
		c.expect(off == 0 || off == 1, "%s: mtimeMs is %d, expected %d, cut or rounded to a millisecond", name, e.MtimeMs, info.ModTime().UnixMilli())
	}
	slices.Sort(got)
	slices.Sort(names)
	c.expect(slices.Equal(got, names), "expected entries named %q, got %q", names, got)
	c.expect(kinds["sub"] == wire.FileDir && kinds["link"] == wire.FileSymlink && kinds["file"] == wire.FileFile, "expected kind dir for sub, symlink for link and file for file, got %v", kinds)
	const many = 1500 // entries, which fit a frame
	for i := range many {
		c.write(filepath.Join(dir, "sub", fmt.Sprint(i)), "")
	}
	a = c.do(on(wire.KindListDir, filepath.Join(dir, "sub")))
	st, _ = a.Outcome.(wire.StatOutcome)
	c.expect(len(st.Entries) == many, "a folder of %d files: %d are named, in %s", many, len(st.Entries), cut(tell(a), 120))
}

func listDirHuge(c *Case) {
	c.begin(refserver.Config{})
	dir := c.path("huge")
	c.must(os.Mkdir(dir, 0o755))
	for i := range 5000 {
		c.must(os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0220d", i)), nil, 0o644))
	}
	listing := on(wire.KindListDir, dir)
	// What went wrong may be told with the path that it is about.
	long := on(wire.KindReadTextFile, "/"+strings.Repeat("<&>\"", 170_000))
	for what, d := range map[string]refserver.Dispatch{"a listing above 1 MiB": listing, "a path of nearly 1 MiB": long} {
		d.TimeoutMs = patience.Milliseconds()
		a := c.ask(d)
		if !c.eventually(patience, func() bool { return a.State() == wire.StateTerminal || c.state().Connections > 1 }) || c.state().Connections > 1 {
			c.stop("%s: it cost the connection, or was not answered within 20 s; expected a failure", what)
		}
		c.failed(what, a.settled())
	}
	c.expect(c.state().Connections == 1, "an answer that fits no frame cost the connection (§2.4)")
	for _, m := range c.trace.messages(fromDevice()) {
		c.expect(m.Size <= wire.MaxFrameBytes, "a frame of %d bytes; 1048576 is the most (§2.1)", m.Size)
	}
	c.exited(c.do(run("true")), 0)
}
