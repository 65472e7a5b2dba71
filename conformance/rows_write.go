package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var writeRows = []Row{
	{ID: "write-receipt", Section: "§3.3", Promise: "a write's receipt names the object really written, and whether it was created", run: writeReceipt},
	{ID: "write-exclusive", Section: "§3.1, §3.2", Promise: "of many exclusive writes at once exactly one wins", Needs: []wire.Kind{wire.KindWriteFileExclusive}, run: writeExclusive},
	{ID: "write-exclusive-outsider", Section: "§3.2", Promise: "an exclusive write never finds absent what another process has put there", Needs: []wire.Kind{wire.KindWriteFileExclusive}, run: writeExclusiveOutsider},
	{ID: "write-guarded", Section: "§3.5", Promise: "a guarded write happens only if what is expected holds", Needs: []wire.Kind{wire.KindWriteFileGuarded}, run: writeGuarded},
	{ID: "write-guarded-race", Section: "§3.2, §3.5", Promise: "of guarded writes over one object exactly one sees it as it was", Needs: []wire.Kind{wire.KindWriteFileGuarded}, run: writeGuardedRace},
	{ID: "write-guarded-outsider", Section: "§3.5", Promise: "a guarded write never buries an object that came to be there unexpected", Needs: []wire.Kind{wire.KindWriteFileGuarded}, run: writeGuardedOutsider},
	{ID: "append", Section: "§3.1", Promise: "appendFile adds at the end, and makes the file if there is none", run: appendRow},
	{ID: "append-race", Section: "§3.4", Promise: "of appends at once none is lost", run: appendRace},
}

func receipt(c *Case, what string, a answer) wire.WriteOutcome {
	w, ok := a.Outcome.(wire.WriteOutcome)
	c.expect(ok && a.By == refserver.ByResult, "%s: expected an outcome of kind write, got %s", what, tell(a))
	return w
}

func writeReceipt(c *Case) {
	c.begin(refserver.Config{})
	path := c.path("file")
	w := receipt(c, "writeFile of a new file", c.do(put(wire.KindWriteFile, path, []byte("one"))))
	c.expect(w.CanonicalPath == path, "canonicalPath is %q, expected %q", w.CanonicalPath, path)
	c.expect(w.Created == nil || *w.Created, "created is false for a new file")
	w = receipt(c, "writeFile over a file", c.do(put(wire.KindWriteFile, path, []byte("two"))))
	c.expect(w.Created == nil || !*w.Created, "created is true for an overwrite")
	c.expect(c.read(path) == "two", "the file holds %q, expected \"two\"", c.read(path))
	other := receipt(c, "writeFile of another file", c.do(put(wire.KindWriteFile, c.path("other"), []byte("two"))))
	c.expect(w.Inode == "" || w.Inode != other.Inode, "two files that are there at once have the same inode, %q", w.Inode)
	c.must(os.Mkdir(c.path("real"), 0o755))
	c.must(os.Symlink("real", c.path("via")))
	w = receipt(c, "writeFile through a link to a folder", c.do(put(wire.KindWriteFile, c.path("via", "f"), []byte("x"))))
	c.expect(w.CanonicalPath == c.path("real", "f") && c.read(c.path("real", "f")) == "x", "canonicalPath is %q, or the file is not there; expected the real path of what was written", w.CanonicalPath)
	// Whether a last link is followed or replaced, the object that was written is named.
	c.must(os.Symlink("file", c.path("last")))
	w = receipt(c, "writeFile at a link to a file", c.do(put(wire.KindWriteFile, c.path("last"), []byte("three"))))
	info, err := os.Lstat(w.CanonicalPath)
	c.expect(err == nil && info.Mode().IsRegular() && c.read(w.CanonicalPath) == "three", "canonicalPath is %q, which is not the file that was written: %v", w.CanonicalPath, err)
}

// oneWins judges writes at once to a path, of which the n-th writes "writer n": one is
// answered with success, and it is the one whose text is there; the others with code.
func oneWins(c *Case, path string, all []*asked, what string, code wire.ErrorCode) {
	var won []int
	for i, call := range all {
		a := call.settled()
		if _, ok := a.Outcome.(wire.WriteOutcome); ok {
			won = append(won, i)
		} else {
			c.failed("a write that came second", a, code)
		}
	}
	if c.expect(len(won) == 1, "%d of %d %s were answered with success; expected 1", len(won), len(all), what) {
		c.expect(c.read(path) == fmt.Sprintf("writer %d", won[0]), "the file holds %q, and the writer that was told success wrote \"writer %d\"", c.read(path), won[0])
	}
}

func writeExclusive(c *Case) {
	c.begin(refserver.Config{MaxInflight: 8})
	for round := range 6 {
		path := c.path(fmt.Sprintf("only%d", round))
		var all []*asked
		for i := range 8 {
			all = append(all, c.ask(put(wire.KindWriteFileExclusive, path, fmt.Appendf(nil, "writer %d", i))))
		}
		oneWins(c, path, all, "exclusive writes at once to one path", wire.CodeAlreadyExists)
	}
	c.must(os.Symlink("nowhere", c.path("dangling")))
	c.failed("an exclusive write over a link to nothing", c.do(put(wire.KindWriteFileExclusive, c.path("dangling"), []byte("x"))), wire.CodeAlreadyExists)
	c.expect(!exists(c.path("nowhere")), "an exclusive write went through a link to nothing")
	path := c.write(c.path("there"), "mine")
	c.failed("an exclusive write over a file", c.do(put(wire.KindWriteFileExclusive, path, []byte("x"))), wire.CodeAlreadyExists)
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
					c.failed("a write that came second", how, wire.CodeAlreadyExists)
				}
				c.expect(!won || !linked, "in round %d both the device and another process created the file", round)
				c.expect(!linked || c.read(path) == "outsider", "in round %d a file that was there first was replaced", round)
				c.expect(linked || !won || c.read(path) == "the device's", "in round %d the write was answered with success, and the file holds %q", round, c.read(path))
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
	w := receipt(c, "writeFile of the first version", c.do(put(wire.KindWriteFile, path, []byte("one"))))
	c.succeeded("a guarded write whose expect holds", c.do(guarded(path, "two", wire.Expect{CanonicalPath: path, FileID: w.Inode})))
	c.expect(c.read(path) == "two", "the file holds %q, expected \"two\"", c.read(path))
	if w.Inode != "" {
		c.failed("a guarded write whose fileId is another object's", c.do(guarded(path, "three", wire.Expect{CanonicalPath: path, FileID: "1"})), wire.CodePreconditionFailed)
	}
	c.failed("a guarded write whose canonicalPath is another", c.do(guarded(path, "three", wire.Expect{CanonicalPath: c.path("other")})), wire.CodePreconditionFailed)
	c.failed("a guarded write with exclusive, over a file", c.do(guarded(path, "three", wire.Expect{CanonicalPath: path, Exclusive: true})), wire.CodeAlreadyExists)
	c.expect(c.read(path) == "two", "a write whose expectation did not hold went through: %q", c.read(path))
	c.must(os.Symlink("file", c.path("link")))
	c.failed("a guarded write with noFollow, at a link", c.do(guarded(c.path("link"), "three", wire.Expect{CanonicalPath: path, NoFollow: true})), wire.CodePreconditionFailed)
	c.expect(c.read(path) == "two", "a write through a link that was not to be followed went through")
	fresh := c.path("fresh")
	c.succeeded("a guarded write with exclusive, of a new file", c.do(guarded(fresh, "new", wire.Expect{CanonicalPath: fresh, Exclusive: true})))
	c.expect(c.read(fresh) == "new", "the new file holds %q", c.read(fresh))
}

func writeGuardedRace(c *Case) {
	c.begin(refserver.Config{MaxInflight: 8})
	for round := range 5 {
		path := c.path(fmt.Sprintf("shared%d", round))
		w := receipt(c, "writeFile of the first version", c.do(put(wire.KindWriteFile, path, []byte("base"))))
		if w.Inode == "" {
			c.skip("a write's receipt has no inode to expect")
		}
		var all []*asked
		for i := range 8 {
			all = append(all, c.ask(guarded(path, fmt.Sprintf("writer %d", i), wire.Expect{CanonicalPath: path, FileID: w.Inode})))
		}
		oneWins(c, path, all, "guarded writes at once that expect the same object", wire.CodePreconditionFailed)
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
		w := receipt(c, "writeFile of the first version", c.do(put(wire.KindWriteFile, path, []byte("base"))))
		if w.Inode == "" {
			c.skip("a write's receipt has no inode to expect")
		}
		outsider := fmt.Sprintf("outsider %d", round)
		c.write(theirs, outsider)
		return guarded(path, "the device's", wire.Expect{CanonicalPath: path, FileID: w.Inode}),
			func() { c.must(os.Rename(theirs, path)) },
			func(how answer) {
				if _, ok := how.Outcome.(wire.WriteOutcome); !ok {
					c.failed("a write that came second", how, wire.CodePreconditionFailed)
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
	c.succeeded("appendFile to a file that is not there", c.do(put(wire.KindAppendFile, path, []byte("one\n"))))
	c.succeeded("appendFile to a file", c.do(put(wire.KindAppendFile, path, []byte("two\n"))))
	c.succeeded("appendFile of nothing", c.do(put(wire.KindAppendFile, path, nil)))
	c.expect(c.read(path) == "one\ntwo\n", "the file holds %q, expected \"one\\ntwo\\n\"", c.read(path))
	big := noise(700_000, 3)
	c.succeeded("appendFile in several parts", c.do(put(wire.KindAppendFile, path, big)))
	c.expect(c.read(path) == "one\ntwo\n"+string(big), "the file holds %d bytes, expected the two lines before and the 700000 that were appended", len(c.read(path)))
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
				c.failed("appendFile beside others", how)
				want = 0
			}
			n := strings.Count(c.read(path), fmt.Sprintf("<%d by %d>", round, i))
			if !c.expect(n == want, "the file holds the bytes of an append %d times, and the answer says %d times", n, want) {
				return
			}
		}
	}
}
