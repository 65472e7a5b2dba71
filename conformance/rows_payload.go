package conformance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var payloadRows = []Row{
	{ID: "payload-parts", Section: "§3.4", Promise: "content arrives in parts of any size, also of several writes in turn, and each gets its own", run: payloadParts},
	{ID: "frame-limit", Section: "§2.1", Promise: "frames of up to 1 MiB are taken", run: frameLimit},
	{ID: "payload-digest", Section: "§3.4", Promise: "content whose digest does not hold changes nothing and leaves nothing", run: func(c *Case) { payloadBroken(c, wrongDigest) }},
	{ID: "payload-length", Section: "§3.4", Promise: "content that is not as long as promised changes nothing and leaves nothing", run: func(c *Case) { payloadBroken(c, wrongLength) }},
	{ID: "payload-missing-part", Section: "§3.4", Promise: "content with a hole changes nothing and leaves nothing", run: func(c *Case) { payloadBroken(c, missingPart) }},
	{ID: "payload-cut", Section: "§3.4", Promise: "a connection that drops within the content leaves no half-written file", run: payloadCut},
	{ID: "write-atomic", Section: "§3.4", Promise: "a reader sees the old file or the new one, never a part of either", run: writeAtomic},
	{ID: "write-no-litter", Section: "§3.4", Promise: "no temporary file stays beside a target", run: writeNoLitter},
	{ID: "write-waits-for-commit", Section: "§3.4", Promise: "content is gathered beside the target, where nothing shows before commit", run: writeWaits},
}

func payloadParts(c *Case) {
	c.begin(refserver.Config{PayloadPart: 997})
	for n, size := range []int{0, 1, 996, 997, 998, 300_000} {
		content := noise(size, byte(n))
		path := c.path(fmt.Sprintf("of-%d", size))
		a := c.do(put(wire.KindWriteFile, path, content))
		c.succeeded(fmt.Sprintf("writeFile of %d bytes", size), a)
		c.expect(exists(path) && c.read(path) == string(content), "of %d bytes that were sent %d are in the file, or others", size, len(c.read(path)))
	}
	var all []*asked
	contents := map[string][]byte{}
	for i := range 4 {
		path := c.path(fmt.Sprintf("beside-%d", i))
		contents[path] = noise(40_000+i, byte(20+i))
		all = append(all, c.ask(put(wire.KindWriteFile, path, contents[path])))
	}
	for _, a := range all {
		c.succeeded("a write beside others", a.settled())
	}
	for path, content := range contents {
		c.expect(c.read(path) == string(content), "of the %d bytes of a write beside others %d are in the file, or others", len(content), len(c.read(path)))
	}
	path := c.path("whole")
	big := noise(2<<20+3, 9)
	c.succeeded("writeFile of 2 MiB", c.do(put(wire.KindWriteFile, path, big)))
	c.expect(c.read(path) == string(big), "of %d bytes that were sent %d are in the file, or others", len(big), len(c.read(path)))
}

func frameLimit(c *Case) {
	const most = (wire.MaxFrameBytes - 300) / 4 * 3 // room for the frame around the base64
	c.begin(refserver.Config{PayloadPart: most})
	path, content := c.path("file"), noise(most+1000, 10)
	c.succeeded("content in parts of nearly 1 MiB", c.do(put(wire.KindWriteFile, path, content)))
	c.expect(c.read(path) == string(content), "of %d bytes %d are in the file, or others", len(content), len(c.read(path)))
	// Not every system can run it. An answer it has to be, either way.
	a := c.do(run("exit 5 #" + strings.Repeat("x", wire.MaxFrameBytes-1000)))
	if _, ok := a.Outcome.(wire.ExecOutcome); ok {
		c.exited(a, 5)
	} else {
		c.failed("a command of nearly 1 MiB", a)
	}
	c.expect(c.state().Connections == 1, "a frame of nearly 1 MiB cost the connection")
}

// breakage turns the parts of a payload into faulty ones.
type breakage func(*wire.Payload) refserver.Action

// replaced is a payload frame in another's place.
func replaced(p wire.Payload) refserver.Action {
	b, err := wire.AppendServer(nil, &p)
	if err != nil {
		return refserver.Action{Drop: true}
	}
	return refserver.Action{Replace: b}
}

func wrongDigest(p *wire.Payload) refserver.Action {
	if p.Part != wire.PartChunk || p.Offset != 0 {
		return refserver.Action{}
	}
	p2 := *p
	p2.Data = bytes.Clone(p.Data)
	p2.Data[0] ^= 1
	return replaced(p2)
}

func wrongLength(p *wire.Payload) refserver.Action {
	if p.Part != wire.PartChunk || p.Offset == 0 {
		return refserver.Action{}
	}
	p2 := *p
	p2.Data = p.Data[:len(p.Data)-1]
	return replaced(p2)
}

func missingPart(p *wire.Payload) refserver.Action {
	return refserver.Action{Drop: p.Part == wire.PartChunk && p.Offset == 0}
}

// kindsOfWrites are the declared kinds that take content.
func (c *Case) kindsOfWrites() []wire.Kind {
	var kinds []wire.Kind
	for _, k := range wire.Kinds() {
		if k.TakesPayload() && c.declares(k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func payloadBroken(c *Case, how breakage) {
	c.begin(refserver.Config{PayloadPart: 1000})
	for _, kind := range c.kindsOfWrites() {
		dir := c.path("in-" + string(kind))
		c.must(os.Mkdir(dir, 0o755))
		path := filepath.Join(dir, "target")
		before := ""
		if kind != wire.KindWriteFileExclusive {
			before = "as it was"
			c.write(path, before)
		}
		d := put(kind, path, noise(2500, 4))
		if kind == wire.KindWriteFileGuarded {
			d.Args = wire.WriteArgs{Path: path, Expect: &wire.Expect{CanonicalPath: path}}
		}
		c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			if p, ok := f.(*wire.Payload); ok {
				return how(p)
			}
			return refserver.Action{}
		}})
		c.failed(string(kind), c.do(d))
		c.server.SetFaults(refserver.Faults{})
		c.expect(c.read(path) == before, "%s: content that was not as announced changed the target", kind)
		c.expect(exists(path) == (before != ""), "%s: content that was not as announced made or removed the target", kind)
		c.onlyIn(dir, before != "", "target")
	}
}

// onlyIn expects that a folder holds nothing but the target, and soon if not at once.
func (c *Case) onlyIn(dir string, target bool, name string) {
	var left []string
	c.eventually(2*time.Second, func() bool {
		entries, err := os.ReadDir(dir)
		c.must(err)
		left = nil
		for _, e := range entries {
			if !target || e.Name() != name {
				left = append(left, e.Name())
			}
		}
		return len(left) == 0
	})
	c.expect(len(left) == 0, "%q were left beside the target", left)
}

func payloadCut(c *Case) {
	c.begin(refserver.Config{PayloadPart: 1000})
	dir := c.path("in")
	path := c.write(filepath.Join(dir, "target"), "as it was")
	var cut atomic.Bool
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		p, ok := f.(*wire.Payload)
		return refserver.Action{Cut: ok && p.Part == wire.PartChunk && p.Offset >= 3000 && cut.CompareAndSwap(false, true)}
	}})
	a := c.do(put(wire.KindWriteFile, path, noise(10_000, 5)))
	_, failed := a.Outcome.(wire.Failure)
	c.expect(failed, "a connection that dropped within the content: expected a failure, got %s", tell(a))
	c.active()
	c.expect(c.read(path) == "as it was", "content that never came whole changed the target")
	c.onlyIn(dir, true, "target")
	c.succeeded("a write afterwards", c.do(put(wire.KindWriteFile, path, []byte("new"))))
}

func writeAtomic(c *Case) {
	c.begin(refserver.Config{})
	path := c.path("file")
	one, two := strings.Repeat("1", 400_000), strings.Repeat("2", 400_000)
	c.write(path, one)
	stop, stopped := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			b, err := os.ReadFile(path)
			if s := string(b); err != nil || s != one && s != two {
				stopped <- fmt.Sprintf("while it was written a reader met %d bytes that are neither the old file nor the new one (%v)", len(b), err)
				return
			}
		}
	}()
	for i := range 20 {
		content := one
		if i%2 == 0 {
			content = two
		}
		c.succeeded("a write", c.do(put(wire.KindWriteFile, path, []byte(content))))
	}
	close(stop)
	if what := <-stopped; what != "" {
		c.fail("%s", what)
	}
}

func writeNoLitter(c *Case) {
	c.begin(refserver.Config{PayloadPart: 1000})
	dir := c.path("in")
	path := c.write(filepath.Join(dir, "target"), "as it was")
	for _, kind := range []wire.Kind{wire.KindWriteFile, wire.KindAppendFile} {
		c.succeeded(string(kind), c.do(put(kind, path, noise(5000, 6))))
		c.onlyIn(dir, true, "target")
	}
	c.failed("a write below a file", c.do(put(wire.KindWriteFile, filepath.Join(path, "x"), noise(5000, 6))))
	c.onlyIn(dir, true, "target")
}

func writeWaits(c *Case) {
	c.begin(refserver.Config{PayloadPart: 1000})
	path := c.write(c.path("file"), "as it was")
	moved, err := arrivals(filepath.Dir(path))
	c.must(err)
	defer moved()
	hold := make(chan struct{})
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		if p, ok := f.(*wire.Payload); ok && p.Part == wire.PartCommit {
			<-hold
		}
		return refserver.Action{}
	}})
	a := c.ask(put(wire.KindWriteFile, path, noise(5000, 8)))
	c.rest(time.Second)
	now := c.read(path)
	elsewhere, err := c.grep(func(p string) bool { return filepath.Dir(p) == filepath.Dir(path) }, needleOf(string(noise(5000, 8)[:900]))) // less than a part
	close(hold)
	c.must(err)
	c.expect(len(elsewhere) == 0, "the content is gathered in another folder than the target's (§3.4, step 1): %s", strings.Join(elsewhere, "; "))
	c.expect(now == "as it was", "before commit came, the target was changed: it had %d bytes", len(now))
	c.succeeded("the write", a.settled())
	for _, name := range moved() {
		c.fail("%s came into the target's folder from another one; the temporary file has to be beside the target (§3.4, step 1)", name)
	}
}
