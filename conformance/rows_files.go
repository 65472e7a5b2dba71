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

var fileRows = []Row{
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
	{ID: "createdir", Section: "§3.1", Promise: "createDir makes parents when recursive, and not otherwise", run: createDir},
	{ID: "remove", Section: "§3.1", Promise: "remove takes a whole folder only when recursive, and a link instead of its target", run: remove},
	{ID: "temporaries", Section: "§3.1", Promise: "createTempDir and createTempFile make new objects, and the receipt is their path", run: temporaries},
	{ID: "paths-literal", Section: "§6.6", Promise: "paths are taken as they are: nothing is expanded or re-based", run: pathsLiteral},
	{ID: "write-receipt", Section: "§3.3", Promise: "a write's receipt names the object really written, and whether it was created", run: writeReceipt},
	{ID: "write-exclusive", Section: "§3.1, §3.2", Promise: "of many exclusive writes at once exactly one wins", Needs: []wire.Kind{wire.KindWriteFileExclusive}, run: writeExclusive},
	{ID: "write-exclusive-outsider", Section: "§3.2", Promise: "an exclusive write never finds absent what another process has put there", Needs: []wire.Kind{wire.KindWriteFileExclusive}, run: writeExclusiveOutsider},
	{ID: "write-guarded", Section: "§3.5", Promise: "a guarded write happens only if what is expected holds", Needs: []wire.Kind{wire.KindWriteFileGuarded}, run: writeGuarded},
	{ID: "write-guarded-race", Section: "§3.2, §3.5", Promise: "of guarded writes over one object exactly one sees it as it was", Needs: []wire.Kind{wire.KindWriteFileGuarded}, run: writeGuardedRace},
	{ID: "write-guarded-outsider", Section: "§3.5", Promise: "a guarded write never buries an object that came to be there unexpected", Needs: []wire.Kind{wire.KindWriteFileGuarded}, run: writeGuardedOutsider},
	{ID: "append", Section: "§3.1", Promise: "appendFile adds at the end, and makes the file if there is none", run: appendRow},
	{ID: "append-race", Section: "§3.4", Promise: "of appends at once none is lost", run: appendRace},
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
			c.expect(same, "%s of %s: %d bytes came, not the %d of the file, or others", kind, name, len(a.data), len(content))
			c.expect(a.Stream.Exits == 0, "%s of %s ended with an exit chunk", kind, name)
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
		c.succeeded("readTextLines", a)
		all := strings.SplitAfter(text.String(), "\n")
		want := strings.Join(all[:min(int(limit), 5000)], "")
		got := string(a.data)
		c.expect(got == want || got+"\n" == want, "limit %d: %d bytes came, not %d", limit, len(got), len(want))
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
		c.expect(boolOf(a) == "false", "exists before: %s", tell(a))
		c.write(c.path(text), "")
		a = c.do(on(wire.KindExists, c.path(text)))
		c.expect(boolOf(a) == "true", "exists after: %s", tell(a))
		c.must(os.RemoveAll(c.path("link")))
		c.must(os.Symlink(text, c.path("link")))
		a = c.do(on(wire.KindCanonicalPath, c.path("link")))
		st, ok := a.Outcome.(wire.StatOutcome)
		c.expect(ok && st.CanonicalPath == c.path(text), "canonicalPath of a link that leads elsewhere now: %s", tell(a))
		c.write(c.path("growing"), strings.Repeat("x", i))
		a = c.do(on(wire.KindFileInfo, c.path("growing")))
		c.expect(infoOf(a).Size == int64(i), "fileInfo of a file that has %d bytes now: %s", i, tell(a))
		a = c.do(on(wire.KindListDir, c.place.workspace))
		st, ok = a.Outcome.(wire.StatOutcome)
		c.expect(ok && slices.ContainsFunc(st.Entries, func(e wire.FileInfo) bool { return e.Path == c.path(text) }), "listDir lacks what is there by now")
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
		c.expect(boolOf(a) == want, "%s: expected %s, got %s", path, want, tell(a))
	}
	// What cannot be looked at is not there for certain.
	c.must(os.Symlink("loop", c.path("loop")))
	a := c.do(on(wire.KindExists, c.path("loop", "below")))
	c.expect(boolOf(a) != "true", "below a loop of links: %s", tell(a))
	long := c.path(strings.Repeat("n", 300))
	a = c.do(on(wire.KindExists, long))
	c.expect(boolOf(a) != "true", "a name that is too long: %s", tell(a))
	if os.Geteuid() != 0 { // root looks everywhere
		c.write(c.path("closed", "file"), "x")
		c.must(os.Chmod(c.path("closed"), 0))
		for _, kind := range []wire.Kind{wire.KindExists, wire.KindFileInfo, wire.KindCanonicalPath, wire.KindReadTextFile} {
			c.failed(string(kind)+" in a folder that may not be entered", c.do(on(kind, c.path("closed", "file"))), wire.CodePermissionDenied)
		}
		c.must(os.Chmod(c.path("closed"), 0o755))
	}
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
		c.expect(ok && st.CanonicalPath == want, "%s: expected %s, got %s", path, want, tell(a))
	}
	c.failed("a dangling link", c.do(on(wire.KindCanonicalPath, c.path("dangling"))), wire.CodeNotFound)
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
	at := time.UnixMilli(1_600_000_123_000)
	c.must(os.Chtimes(file, at, at))
	c.must(os.Chmod(file, 0o640))
	c.must(os.Mkdir(c.path("dir"), 0o755))
	c.must(os.Symlink("file", c.path("link")))
	a := c.do(on(wire.KindFileInfo, file))
	i := infoOf(a)
	c.expect(i.Kind == wire.FileFile && i.Size == 12 && i.MtimeMs == at.UnixMilli(), "a file: %s", tell(a))
	c.expect(i.Mode == nil || *i.Mode&0o777 == 0o640, "its mode is %o", deref(i.Mode))
	c.expect(i.Path == file, "its path is %q", i.Path)
	a = c.do(on(wire.KindFileInfo, c.path("dir")))
	c.expect(infoOf(a).Kind == wire.FileDir, "a folder: %s", tell(a))
	a = c.do(on(wire.KindFileInfo, c.path("link")))
	c.expect(infoOf(a).Kind == wire.FileSymlink, "a link, which is not to be followed helpfully: %s", tell(a))
	a = c.do(on(wire.KindFileInfo, "/dev/null"))
	c.expect(infoOf(a).Kind == wire.FileOther, "a device: %s", tell(a))
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
		c.expect(ok && st.LinkTarget != nil && st.LinkTarget.IsLink && st.LinkTarget.Target == target, "%s → %s: %s", name, target, tell(a))
	}
	a := c.do(on(wire.KindReadLink, c.path("file")))
	if _, failed := a.Outcome.(wire.Failure); failed { // §3.1 has null for it, §3.3 this
		c.failed("what is no link", a, wire.CodeInvalid)
	} else {
		st, ok := a.Outcome.(wire.StatOutcome)
		c.expect(ok && st.LinkTarget != nil && !st.LinkTarget.IsLink, "what is no link: expected null, got %s", tell(a))
	}
	c.failed("what is missing", c.do(on(wire.KindReadLink, c.path("missing"))), wire.CodeNotFound)
}

func listDirTruth(c *Case) {
	c.begin(refserver.Config{})
	dir := c.path("dir")
	c.must(os.Mkdir(dir, 0o755))
	a := c.do(on(wire.KindListDir, dir))
	st, ok := a.Outcome.(wire.StatOutcome)
	c.expect(ok && st.Entries != nil && len(st.Entries) == 0, "an empty folder: %s", tell(a))
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
		c.expect(e.Path == filepath.Join(dir, name), "the path of an entry is %q", e.Path)
		got = append(got, name)
		kinds[name] = e.Kind
		info, err := os.Lstat(e.Path)
		c.must(err)
		c.expect(!info.Mode().IsRegular() || info.Size() == e.Size, "%s is not of %d bytes", name, e.Size)
		off := e.MtimeMs - info.ModTime().UnixMilli()
		c.expect(off == 0 || off == 1, "the time of %s is off by %d ms", name, off) // cut, or rounded
	}
	slices.Sort(got)
	slices.Sort(names)
	c.expect(slices.Equal(got, names), "expected %q, got %q", names, got)
	c.expect(kinds["sub"] == wire.FileDir && kinds["link"] == wire.FileSymlink && kinds["file"] == wire.FileFile, "kinds: %v", kinds)
	const many = 1500 // entries, which fit a frame
	for i := range many {
		c.write(filepath.Join(dir, "sub", fmt.Sprint(i)), "")
	}
	a = c.do(on(wire.KindListDir, filepath.Join(dir, "sub")))
	st, _ = a.Outcome.(wire.StatOutcome)
	c.expect(len(st.Entries) == many, "of %d entries %d are named: %T", many, len(st.Entries), a.Outcome)
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
			c.stop("%s: it cost the connection, or was not answered", what)
		}
		c.failed(what, a.settled())
	}
	c.expect(c.state().Connections == 1, "it cost the connection")
	for _, m := range c.trace.messages(fromDevice()) {
		c.expect(m.Size <= wire.MaxFrameBytes, "a frame of %d bytes", m.Size)
	}
	c.exited(c.do(run("true")), 0)
}

func createDir(c *Case) {
	c.begin(refserver.Config{})
	yes, no := true, false
	deep := c.path("a", "b", "c")
	c.failed("without recursive and without parent", c.do(refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: deep, Recursive: &no}}), wire.CodeNotFound)
	c.expect(!exists(c.path("a")), "a parent was made all the same")
	c.succeeded("recursive", c.do(refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: deep, Recursive: &yes}}))
	info, err := os.Stat(deep)
	c.expect(err == nil && info.IsDir(), "it is not there")
	c.write(filepath.Join(deep, "file"), "kept")
	again := c.do(refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: deep, Recursive: &yes}})
	if _, failed := again.Outcome.(wire.Failure); failed {
		c.failed("recursive, again", again, wire.CodeAlreadyExists)
	}
	c.expect(c.read(filepath.Join(deep, "file")) == "kept", "what was in it is gone")
}

func remove(c *Case) {
	c.begin(refserver.Config{})
	yes, no := true, false
	keep := c.write(c.path("keep", "file"), "kept")
	c.write(c.path("tree", "below", "file"), "x")
	c.must(os.Symlink(c.path("keep"), c.path("tree", "link")))
	c.must(os.Symlink(keep, c.path("link")))
	rm := func(path string, recursive *bool) answer {
		return c.do(refserver.Dispatch{Kind: wire.KindRemove, Args: wire.DirArgs{Path: path, Recursive: recursive}})
	}
	c.failed("a full folder without recursive", rm(c.path("tree"), &no))
	c.expect(exists(c.path("tree", "below", "file")), "it took something from a folder without recursive")
	c.succeeded("a link", rm(c.path("link"), &no))
	c.expect(!exists(c.path("link")) && c.read(keep) == "kept", "the link stays, or its target went")
	c.succeeded("a tree", rm(c.path("tree"), &yes))
	c.expect(!exists(c.path("tree")), "the tree is still there")
	c.expect(c.read(keep) == "kept", "what a link in the tree pointed to went with it")
}

func temporaries(c *Case) {
	c.begin(refserver.Config{})
	seen := map[string]bool{}
	for range 3 {
		for _, kind := range []wire.Kind{wire.KindCreateTempDir, wire.KindCreateTempFile} {
			args := wire.TempArgs{Prefix: "conf-pre-"}
			if kind == wire.KindCreateTempFile {
				args.Suffix = ".suf"
			}
			a := c.do(refserver.Dispatch{Kind: kind, Args: args})
			w, ok := a.Outcome.(wire.WriteOutcome)
			if !c.expect(ok, "%s: %s", kind, tell(a)) {
				continue
			}
			info, err := os.Lstat(w.CanonicalPath)
			c.expect(err == nil && info.IsDir() == (kind == wire.KindCreateTempDir), "%s: %s is not there", kind, w.CanonicalPath)
			real, err := filepath.EvalSymlinks(w.CanonicalPath)
			c.expect(err == nil && real == w.CanonicalPath, "%s: %s is not its real path", kind, w.CanonicalPath)
			base := filepath.Base(w.CanonicalPath)
			c.expect(strings.HasPrefix(base, args.Prefix) && strings.HasSuffix(base, args.Suffix), "%s is named %q", kind, base)
			c.expect(!seen[w.CanonicalPath], "%s gave the same path twice", kind)
			seen[w.CanonicalPath] = true
			c.must(os.RemoveAll(w.CanonicalPath))
		}
	}
}

func pathsLiteral(c *Case) {
	c.begin(refserver.Config{})
	for _, name := range []string{"~", "$HOME", "a*b", "tab\there", "new\nline", "quote'\"", "%41", "uni-ü", " lead"} {
		path := c.path(name)
		a := c.do(put(wire.KindWriteFile, path, []byte(name)))
		c.succeeded(fmt.Sprintf("writing %q", name), a)
		c.expect(c.read(path) == name, "%q was not written where it was asked for", name)
		c.expect(string(c.do(on(wire.KindReadTextFile, path)).data) == name, "%q was not read where it was asked for", name)
	}
	c.failed("a relative path", c.do(on(wire.KindReadTextFile, "~")))
}

func receipt(c *Case, what string, a answer) wire.WriteOutcome {
	w, ok := a.Outcome.(wire.WriteOutcome)
	c.expect(ok && a.By == refserver.ByResult, "%s: %s", what, tell(a))
	return w
}

func writeReceipt(c *Case) {
	c.begin(refserver.Config{})
	path := c.path("file")
	w := receipt(c, "a new file", c.do(put(wire.KindWriteFile, path, []byte("one"))))
	c.expect(w.CanonicalPath == path, "canonicalPath is %q", w.CanonicalPath)
	c.expect(w.Created == nil || *w.Created, "created is false for a new file")
	w = receipt(c, "an overwrite", c.do(put(wire.KindWriteFile, path, []byte("two"))))
	c.expect(w.Created == nil || !*w.Created, "created is true for an overwrite")
	c.expect(c.read(path) == "two", "the file holds %q", c.read(path))
	other := receipt(c, "another file", c.do(put(wire.KindWriteFile, c.path("other"), []byte("two"))))
	c.expect(w.Inode == "" || w.Inode != other.Inode, "two files have the inode %q", w.Inode)
	c.must(os.Mkdir(c.path("real"), 0o755))
	c.must(os.Symlink("real", c.path("via")))
	w = receipt(c, "through a linked folder", c.do(put(wire.KindWriteFile, c.path("via", "f"), []byte("x"))))
	c.expect(w.CanonicalPath == c.path("real", "f") && c.read(c.path("real", "f")) == "x", "canonicalPath is %q", w.CanonicalPath)
	// Whether a last link is followed or replaced, the object that was written is named.
	c.must(os.Symlink("file", c.path("last")))
	w = receipt(c, "at a link", c.do(put(wire.KindWriteFile, c.path("last"), []byte("three"))))
	info, err := os.Lstat(w.CanonicalPath)
	c.expect(err == nil && info.Mode().IsRegular() && c.read(w.CanonicalPath) == "three", "canonicalPath is %q, which is not the file that was written: %v", w.CanonicalPath, err)
}

func writeExclusive(c *Case) {
	c.begin(refserver.Config{MaxInflight: 8})
	for round := range 6 {
		path := c.path(fmt.Sprintf("only%d", round))
		var all []*asked
		for i := range 8 {
			all = append(all, c.ask(put(wire.KindWriteFileExclusive, path, fmt.Appendf(nil, "writer %d", i))))
		}
		var won []int
		for i, call := range all {
			a := call.settled()
			if _, ok := a.Outcome.(wire.WriteOutcome); ok {
				won = append(won, i)
			} else {
				c.failed("a writer that lost", a, wire.CodeAlreadyExists)
			}
		}
		if c.expect(len(won) == 1, "%d of 8 exclusive writes won", len(won)) {
			c.expect(c.read(path) == fmt.Sprintf("writer %d", won[0]), "the file holds %q, writer %d was told it had won", c.read(path), won[0])
		}
	}
	c.must(os.Symlink("nowhere", c.path("dangling")))
	c.failed("over a dangling link", c.do(put(wire.KindWriteFileExclusive, c.path("dangling"), []byte("x"))), wire.CodeAlreadyExists)
	c.expect(!exists(c.path("nowhere")), "it wrote through a dangling link")
	path := c.write(c.path("there"), "mine")
	c.failed("over a file", c.do(put(wire.KindWriteFileExclusive, path, []byte("x"))), wire.CodeAlreadyExists)
	c.expect(c.read(path) == "mine", "an exclusive write replaced a file")
}

// writeExclusiveOutsider has another process put its own file at the path while an
// exclusive write is under way. Only one of the two can have found nothing there.
func writeExclusiveOutsider(c *Case) {
	c.begin(refserver.Config{})
	theirs := c.write(c.path("theirs"), "outsider")
	c.must(os.Mkdir(c.path("in"), 0o755))
	c.whileWriting(400, func(round int) (ask refserver.Dispatch, meanwhile func(), judge func(answer)) {
		path := c.path("in", fmt.Sprint(round))
		linked := false
		return put(wire.KindWriteFileExclusive, path, []byte("the device's")),
			func() {
				err := os.Link(theirs, path)
				if linked = err == nil; !linked && !os.IsExist(err) {
					c.must(err)
				}
			},
			func(how answer) {
				_, won := how.Outcome.(wire.WriteOutcome)
				if !won {
					c.failed("a writer that lost", how, wire.CodeAlreadyExists)
				}
				c.expect(!won || !linked, "in round %d both the device and another process created the file", round)
				c.expect(!linked || c.read(path) == "outsider", "in round %d a file that was there first was replaced", round)
				c.expect(linked || !won || c.read(path) == "the device's", "in round %d the file holds %q", round, c.read(path))
			}
	})
}

// whileWriting runs rounds of a write during which something else happens, at some
// moment of the time that such a write takes, until one of them fails.
func (c *Case) whileWriting(rounds int, round func(n int) (ask refserver.Dispatch, meanwhile func(), judge func(answer))) {
	usual := 3 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < rounds && c.verdict == Pass; n++ {
		ask, meanwhile, judge := round(n)
		a := c.ask(ask)
		spin(time.Duration(random.Int64N(int64(usual) + 1)))
		meanwhile()
		how := a.settled()
		usual = (7*usual + min(how.took, 20*time.Millisecond)) / 8
		judge(how)
	}
}

// guarded is a guarded write.
func guarded(path string, content string, e wire.Expect) refserver.Dispatch {
	return refserver.Dispatch{Kind: wire.KindWriteFileGuarded, Args: wire.WriteArgs{Path: path, Expect: &e}, Content: []byte(content)}
}

func writeGuarded(c *Case) {
	c.begin(refserver.Config{})
	path := c.path("file")
	w := receipt(c, "the first version", c.do(put(wire.KindWriteFile, path, []byte("one"))))
	c.succeeded("what is expected holds", c.do(guarded(path, "two", wire.Expect{CanonicalPath: path, FileID: w.Inode})))
	c.expect(c.read(path) == "two", "the file holds %q", c.read(path))
	if w.Inode != "" {
		c.failed("another object is there by now", c.do(guarded(path, "three", wire.Expect{CanonicalPath: path, FileID: "1"})), wire.CodePreconditionFailed)
	}
	c.failed("another canonical path", c.do(guarded(path, "three", wire.Expect{CanonicalPath: c.path("other")})), wire.CodePreconditionFailed)
	c.failed("it has to be new", c.do(guarded(path, "three", wire.Expect{CanonicalPath: path, Exclusive: true})), wire.CodeAlreadyExists)
	c.expect(c.read(path) == "two", "a write whose expectation did not hold went through: %q", c.read(path))
	c.must(os.Symlink("file", c.path("link")))
	c.failed("noFollow at a link", c.do(guarded(c.path("link"), "three", wire.Expect{CanonicalPath: path, NoFollow: true})), wire.CodePreconditionFailed)
	c.expect(c.read(path) == "two", "a write through a link that was not to be followed went through")
	fresh := c.path("fresh")
	c.succeeded("it is new", c.do(guarded(fresh, "new", wire.Expect{CanonicalPath: fresh, Exclusive: true})))
	c.expect(c.read(fresh) == "new", "the new file holds %q", c.read(fresh))
}

func writeGuardedRace(c *Case) {
	c.begin(refserver.Config{MaxInflight: 8})
	for round := range 5 {
		path := c.path(fmt.Sprintf("shared%d", round))
		w := receipt(c, "the first version", c.do(put(wire.KindWriteFile, path, []byte("base"))))
		if w.Inode == "" {
			c.skip("a write's receipt has no inode to expect")
		}
		var all []*asked
		for i := range 8 {
			all = append(all, c.ask(guarded(path, fmt.Sprintf("writer %d", i), wire.Expect{CanonicalPath: path, FileID: w.Inode})))
		}
		var won []int
		for i, call := range all {
			a := call.settled()
			if _, ok := a.Outcome.(wire.WriteOutcome); ok {
				won = append(won, i)
			} else {
				c.failed("a writer that lost", a, wire.CodePreconditionFailed)
			}
		}
		if c.expect(len(won) == 1, "%d of 8 guarded writes saw the same object", len(won)) {
			c.expect(c.read(path) == fmt.Sprintf("writer %d", won[0]), "the file holds %q", c.read(path))
		}
	}
}

// writeGuardedOutsider has another process rename its own file to the path while a
// guarded write that expects the former file is under way. Whoever comes first,
// the outsider's file must be there in the end: either it replaced the new file, or
// it was there and was not expected.
func writeGuardedOutsider(c *Case) {
	c.begin(refserver.Config{})
	path, theirs := c.path("in", "shared"), c.path("theirs")
	c.must(os.Mkdir(c.path("in"), 0o755))
	c.whileWriting(500, func(round int) (ask refserver.Dispatch, meanwhile func(), judge func(answer)) {
		w := receipt(c, "the first version", c.do(put(wire.KindWriteFile, path, []byte("base"))))
		if w.Inode == "" {
			c.skip("a write's receipt has no inode to expect")
		}
		outsider := fmt.Sprintf("outsider %d", round)
		c.write(theirs, outsider)
		return guarded(path, "the device's", wire.Expect{CanonicalPath: path, FileID: w.Inode}),
			func() { c.must(os.Rename(theirs, path)) },
			func(how answer) {
				if _, ok := how.Outcome.(wire.WriteOutcome); !ok {
					c.failed("a writer that lost", how, wire.CodePreconditionFailed)
				}
				c.expect(c.read(path) == outsider, "in round %d a file that was not the expected one was replaced", round)
			}
	})
}

// spin waits to within microseconds, which a sleep does not.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

func appendRow(c *Case) {
	c.begin(refserver.Config{})
	path := c.path("log")
	c.succeeded("to a file that is not there", c.do(put(wire.KindAppendFile, path, []byte("one\n"))))
	c.succeeded("to a file", c.do(put(wire.KindAppendFile, path, []byte("two\n"))))
	c.succeeded("nothing", c.do(put(wire.KindAppendFile, path, nil)))
	c.expect(c.read(path) == "one\ntwo\n", "the file holds %q", c.read(path))
	big := noise(700_000, 3)
	c.succeeded("in several parts", c.do(put(wire.KindAppendFile, path, big)))
	c.expect(c.read(path) == "one\ntwo\n"+string(big), "the file holds %d bytes", len(c.read(path)))
}

func appendRace(c *Case) {
	const writers, rounds = 8, 5
	c.begin(refserver.Config{MaxInflight: writers})
	path := c.write(c.path("log"), "")
	for round := range rounds {
		var all []*asked
		for i := range writers {
			all = append(all, c.ask(put(wire.KindAppendFile, path, fmt.Appendf(nil, "<%d by %d>", round, i))))
		}
		for i, a := range all {
			want := 1
			if how := a.settled(); !c.done(how) {
				c.failed("an append beside others", how)
				want = 0
			}
			n := strings.Count(c.read(path), fmt.Sprintf("<%d by %d>", round, i))
			if !c.expect(n == want, "the file holds the bytes of an append %d times, and the answer says %d times", n, want) {
				return
			}
		}
	}
}
