package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var fileRows = []Row{
	{ID: "createdir", Section: "§3.1", Promise: "createDir makes parents when recursive, and not otherwise", run: createDir},
	{ID: "remove", Section: "§3.1", Promise: "remove takes a whole folder only when recursive, and a link instead of its target", run: remove},
	{ID: "temporaries", Section: "§3.1", Promise: "createTempDir and createTempFile make new objects, and the receipt is their path", run: temporaries},
	{ID: "paths-literal", Section: "§6.6", Promise: "paths are taken as they are: nothing is expanded or re-based", run: pathsLiteral},
}

func createDir(c *Case) {
	c.begin(refserver.Config{})
	yes, no := true, false
	deep := c.path("a", "b", "c")
	c.failed("createDir without recursive where the parent is missing", c.do(refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: deep, Recursive: &no}}), wire.CodeNotFound)
	c.expect(!exists(c.path("a")), "createDir without recursive made a parent")
	c.succeeded("createDir with recursive", c.do(refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: deep, Recursive: &yes}}))
	info, err := os.Stat(deep)
	c.expect(err == nil && info.IsDir(), "createDir was answered with success, and the folder is not there")
	c.write(filepath.Join(deep, "file"), "kept")
	again := c.do(refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: deep, Recursive: &yes}})
	if _, failed := again.Outcome.(wire.Failure); failed {
		c.failed("createDir with recursive of what is there", again, wire.CodeAlreadyExists)
	}
	c.expect(c.read(filepath.Join(deep, "file")) == "kept", "createDir of a folder that is there emptied it")
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
	c.failed("remove of a full folder without recursive", rm(c.path("tree"), &no))
	c.expect(exists(c.path("tree", "below", "file")), "remove without recursive took something out of a folder")
	c.succeeded("remove of a link", rm(c.path("link"), &no))
	c.expect(!exists(c.path("link")) && c.read(keep) == "kept", "after remove of a link the link is still there, or its target is gone")
	c.succeeded("remove of a folder with recursive", rm(c.path("tree"), &yes))
	c.expect(!exists(c.path("tree")), "after remove with recursive the folder is still there")
	c.expect(c.read(keep) == "kept", "remove with recursive took what a link in the folder leads to")
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
			if !c.expect(ok, "%s: expected an outcome of kind write, got %s", kind, tell(a)) {
				continue
			}
			info, err := os.Lstat(w.CanonicalPath)
			c.expect(err == nil && info.IsDir() == (kind == wire.KindCreateTempDir), "%s: nothing of that sort is at the answer's canonicalPath, %s", kind, w.CanonicalPath)
			real, err := filepath.EvalSymlinks(w.CanonicalPath)
			c.expect(err == nil && real == w.CanonicalPath, "%s: canonicalPath is %s, which is not the real path", kind, w.CanonicalPath)
			base := filepath.Base(w.CanonicalPath)
			c.expect(strings.HasPrefix(base, args.Prefix) && strings.HasSuffix(base, args.Suffix), "%s with prefix %q and suffix %q is named %q", kind, args.Prefix, args.Suffix, base)
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
	c.failed("readTextFile of a relative path, \"~\"", c.do(on(wire.KindReadTextFile, "~")))
}
