package instructions

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// disk is a bench with the file handlers on a real folder.
type disk struct {
	*bench
	dir  string
	next int
}

func onDisk(t *testing.T, test func(d *disk)) { onDiskWith(t, nil, test) }

// onDiskWith lets some system calls be other than the real ones; calls runs inside
// the bubble.
func onDiskWith(t *testing.T, calls func() posix.Calls, test func(d *disk)) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := files.Config{TempDir: temp}
		if calls != nil {
			c.Calls = calls()
		}
		l, err := files.New(c)
		if err != nil {
			t.Fatal(err)
		}
		d := &disk{bench: newBench(t, Files(l)), dir: dir}
		test(d)
		d.finish()
	})
}

// do runs one instruction without content and returns its id.
func (d *disk) do(k wire.Kind, a wire.Args) string {
	d.t.Helper()
	d.next++
	id := fmt.Sprint("i", d.next)
	raw, err := wire.AppendArgs(nil, a)
	if err != nil {
		d.t.Fatal(err)
	}
	d.d.Instruct(ask(id, k, string(raw)))
	return id
}

func (d *disk) answer(k wire.Kind, a wire.Args) wire.Outcome {
	d.t.Helper()
	o := d.outcome(d.do(k, a))
	if !wire.Fits(k, o) {
		d.t.Errorf("%s was answered with %T %+v", k, o, o)
	}
	return o
}

func (d *disk) fails(code wire.ErrorCode, k wire.Kind, a wire.Args) {
	d.t.Helper()
	o := d.answer(k, a)
	if f, ok := o.(wire.Failure); !ok || f.Code != code {
		d.t.Errorf("%s %+v: %+v, want %s", k, a, o, code)
	}
}

// put sends a write and its content in slices of some size.
func (d *disk) put(k wire.Kind, path, content string, slice int, expect *wire.Expect) wire.Outcome {
	d.t.Helper()
	id := d.do(k, wire.WriteArgs{Path: path, ContentLen: int64(len(content)), SHA256: sum256(content), Expect: expect})
	for _, p := range frames(id, content, slice) {
		d.d.Payload(p)
	}
	return d.outcome(id)
}

func sum256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func frames(id, content string, slice int) []*wire.Payload {
	sum := sum256(content)
	all := []*wire.Payload{{Gen: "1", InstructionID: id, Part: wire.PartBegin, TotalLen: int64(len(content)), SHA256: sum}}
	for at := 0; at < len(content); at += slice {
		data := content[at:min(at+slice, len(content))]
		all = append(all, &wire.Payload{Gen: "1", InstructionID: id, Part: wire.PartChunk, Offset: int64(at), Data: []byte(data)})
	}
	return append(all, &wire.Payload{Gen: "1", InstructionID: id, Part: wire.PartCommit, TotalLen: int64(len(content)), SHA256: sum})
}

func (d *disk) holds(name, content string) {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil || string(b) != content {
		d.t.Errorf("%s holds %.60q (%v), want %.60q", name, b, err, content)
	}
}

func (d *disk) names(want ...string) {
	d.t.Helper()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("the folder holds %q, want %q", got, want)
	}
}

func TestEveryKindButTheUndispatchedHasAHandler(t *testing.T) {
	l, err := files.New(files.Config{TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var want []wire.Kind
	for _, k := range wire.Kinds() {
		if k != wire.KindExec && k != wire.KindExecStream && k != wire.KindStatBatch {
			want = append(want, k)
		}
	}
	got := slices.Sorted(maps.Keys(Files(l)))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("handlers of %v, want %v", got, want)
	}
}

func TestWritesAnswerWithAReceipt(t *testing.T) {
	onDisk(t, func(d *disk) {
		path := d.dir + "/sub/a \"b\"\n.txt"
		want := func(o wire.Outcome, created bool) wire.WriteOutcome {
			t.Helper()
			w, ok := o.(wire.WriteOutcome)
			if !ok || w.CanonicalPath != path || w.Inode == "" || w.Created == nil || *w.Created != created {
				t.Fatalf("%+v", o)
			}
			return w
		}
		for slice := 1; slice < 10; slice += 4 {
			want(d.put(wire.KindWriteFile, path, "content", slice, nil), slice == 1)
		}
		first := want(d.put(wire.KindWriteFile, path, "", 1, nil), false)
		second := want(d.put(wire.KindWriteFileGuarded, path, "guarded", 3, &wire.Expect{CanonicalPath: path, FileID: first.Inode}), false)
		if first.Inode == second.Inode {
			t.Error("two objects with one identity")
		}
		if o := d.put(wire.KindWriteFileGuarded, path, "late", 3, &wire.Expect{CanonicalPath: path, FileID: first.Inode}); describe(o) != "precondition_failed" {
			t.Errorf("an object that is gone: %+v", o)
		}
		if o := d.put(wire.KindWriteFileGuarded, path, "late", 3, nil); describe(o) != "invalid" {
			t.Errorf("no expect: %+v", o)
		}
		if o := d.put(wire.KindWriteFileExclusive, path, "late", 3, nil); describe(o) != "already_exists" {
			t.Errorf("exclusive: %+v", o)
		}
		if o := d.put(wire.KindAppendFile, path, " and more", 3, nil); describe(o) != "void" {
			t.Errorf("append: %+v", o)
		}
		d.holds("sub/a \"b\"\n.txt", "guarded and more")
		d.names("sub")
	})
}

func TestInterleavedContentsStayApart(t *testing.T) {
	onDisk(t, func(d *disk) {
		var rows [][]*wire.Payload
		var ids []string
		for i := range 5 {
			content := strings.Repeat(fmt.Sprint(i), 1000)
			id := d.do(wire.KindWriteFile, wire.WriteArgs{Path: fmt.Sprintf("%s/%d", d.dir, i), ContentLen: 1000, SHA256: sum256(content)})
			ids, rows = append(ids, id), append(rows, frames(id, content, 90+i))
		}
		for n := 0; n < 14; n++ {
			for _, row := range rows {
				if n < len(row) {
					d.d.Payload(row[n])
				}
			}
		}
		for i, id := range ids {
			if o := d.outcome(id); describe(o) != "write" {
				t.Errorf("%s: %+v", id, o)
			}
			d.holds(fmt.Sprint(i), strings.Repeat(fmt.Sprint(i), 1000))
		}
	})
}

func TestAWriteCutOffLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		cut  func(d *disk, id string)
		want string
	}{
		"cancelled":    {func(d *disk, id string) { d.d.Cancel(id) }, "cancelled not_started"},
		"disconnected": {func(d *disk, id string) { d.d.Disconnected() }, "target_unavailable"},
		"out of time":  {func(d *disk, id string) { time.Sleep(time.Hour + time.Second) }, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(d *disk) {
				if err := os.WriteFile(d.dir+"/f", []byte("old"), 0o644); err != nil {
					t.Fatal(err)
				}
				for _, path := range []string{"/f", "/a/b/new"} {
					id := d.do(wire.KindWriteFile, wire.WriteArgs{Path: d.dir + path, ContentLen: 100, SHA256: sum256(strings.Repeat("x", 100))})
					all := frames(id, strings.Repeat("x", 100), 10)
					for _, p := range all[:5] {
						d.d.Payload(p)
					}
					synctest.Wait()
					c.cut(d, id)
					if got := describe(d.outcome(id)); got != c.want {
						t.Errorf("%s: %s, want %s", path, got, c.want)
					}
					for _, p := range all[5:] {
						d.d.Payload(p)
					}
				}
				d.holds("f", "old")
				d.names("f")
			})
		})
	}
}

func TestReadsSendTheBytesAsTheyAre(t *testing.T) {
	onDisk(t, func(d *disk) {
		content := "one\r\ntwo\n\xff\x00three\n\nlast"
		big := strings.Repeat("0123456789abcdef", 20_000)
		for name, c := range map[string]string{"f": content, "big": big, "empty": ""} {
			if err := os.WriteFile(d.dir+"/"+name, []byte(c), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, k := range []wire.Kind{wire.KindReadTextFile, wire.KindReadBinaryFile} {
				id := d.do(k, wire.PathArgs{Path: d.dir + "/" + name})
				if o := d.outcome(id); describe(o) != "read" || d.ear.text(id, wire.ChunkData) != c {
					t.Errorf("%s %s: %+v, %d bytes", k, name, o, len(d.ear.text(id, wire.ChunkData)))
				}
			}
		}
		n := func(v int64) *int64 { return &v }
		for _, c := range []struct {
			offset, limit *int64
			want          string
		}{
			{nil, nil, content}, {nil, n(0), ""}, {nil, n(1), "one\r\n"}, {n(1), n(1), "two\n"},
			{n(3), n(2), "\nlast"}, {n(4), n(9), "last"}, {n(5), nil, ""}, {n(0), n(5), content}, {n(9), n(1), ""},
		} {
			id := d.do(wire.KindReadTextLines, wire.ReadLinesArgs{Path: d.dir + "/f", Offset: c.offset, Limit: c.limit})
			if o := d.outcome(id); describe(o) != "read" || d.ear.text(id, wire.ChunkData) != c.want {
				t.Errorf("%+v: %+v, %q", c, o, d.ear.text(id, wire.ChunkData))
			}
		}
		d.fails(wire.CodeNotFound, wire.KindReadTextFile, wire.PathArgs{Path: d.dir + "/missing"})
		d.fails(wire.CodeIsDirectory, wire.KindReadTextFile, wire.PathArgs{Path: d.dir})
		d.fails(wire.CodeNotDirectory, wire.KindReadTextFile, wire.PathArgs{Path: d.dir + "/f/x"})
		if err := syscall.Mkfifo(d.dir+"/fifo", 0o644); err != nil {
			t.Fatal(err)
		}
		d.fails(wire.CodeInvalid, wire.KindReadTextLines, wire.ReadLinesArgs{Path: d.dir + "/fifo"})
	})
}

func TestLooksAnswerWithWhatWasAskedOnly(t *testing.T) {
	onDisk(t, func(d *disk) {
		if err := os.WriteFile(d.dir+"/f", []byte("12345"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d.dir+"/f", 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("f", d.dir+"/link"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("nowhere", d.dir+"/dangling"); err != nil {
			t.Fatal(err)
		}
		at := func(name string) wire.PathArgs { return wire.PathArgs{Path: d.dir + "/" + name} }
		is := func(o wire.Outcome, want string) {
			t.Helper()
			b, err := json.Marshal(o)
			if err != nil || string(b) != want {
				t.Errorf("%s, want %s", b, want)
			}
		}
		yes, no := true, false
		render := func(s wire.StatOutcome) string { b, _ := json.Marshal(s); return string(b) }
		is(d.answer(wire.KindExists, at("f")), render(wire.StatOutcome{ExistsValue: &yes}))
		is(d.answer(wire.KindExists, at("dangling")), render(wire.StatOutcome{ExistsValue: &yes}))
		is(d.answer(wire.KindExists, at("missing")), render(wire.StatOutcome{ExistsValue: &no}))
		is(d.answer(wire.KindExists, at("missing/deeper")), render(wire.StatOutcome{ExistsValue: &no}))
		is(d.answer(wire.KindCanonicalPath, at("link")), render(wire.StatOutcome{CanonicalPath: d.dir + "/f"}))
		is(d.answer(wire.KindReadLink, at("link")), render(wire.StatOutcome{LinkTarget: &wire.LinkTarget{IsLink: true, Target: "f"}}))
		is(d.answer(wire.KindReadLink, at("f")), render(wire.StatOutcome{LinkTarget: &wire.LinkTarget{}}))
		i := d.answer(wire.KindFileInfo, at("f")).(wire.StatOutcome)
		if i.Info == nil || i.Info.Path != d.dir+"/f" || i.Info.Kind != wire.FileFile || i.Info.Size != 5 || *i.Info.Mode != 0o640 || i.Entries != nil || i.ExistsValue != nil {
			t.Errorf("%+v", i)
		}
		var got []string
		for _, e := range d.answer(wire.KindListDir, wire.PathArgs{Path: d.dir + "/"}).(wire.StatOutcome).Entries {
			got = append(got, e.Path+" "+string(e.Kind))
		}
		if want := []string{d.dir + "/dangling symlink", d.dir + "/f file", d.dir + "/link symlink"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		d.fails(wire.CodeNotFound, wire.KindFileInfo, at("missing"))
		d.fails(wire.CodeNotFound, wire.KindCanonicalPath, at("dangling"))
		d.fails(wire.CodeNotFound, wire.KindReadLink, at("missing"))
		d.fails(wire.CodeNotDirectory, wire.KindListDir, at("f"))
		d.fails(wire.CodeNotFound, wire.KindListDir, at("missing"))
		d.fails(wire.CodeNotDirectory, wire.KindExists, at("f/x"))
		d.fails(wire.CodeInvalid, wire.KindFileInfo, wire.PathArgs{Path: "relative"})
	})
}

func TestFoldersAreMadeAndRemovedAsAsked(t *testing.T) {
	onDisk(t, func(d *disk) {
		yes, no := true, false
		is := func(k wire.Kind, name string, recursive *bool, want string) {
			t.Helper()
			if got := describe(d.answer(k, wire.DirArgs{Path: d.dir + name, Recursive: recursive})); got != want {
				t.Errorf("%s %s: %s, want %s", k, name, got, want)
			}
		}
		is(wire.KindCreateDir, "/a/b", &no, "not_found")
		is(wire.KindCreateDir, "/a", &no, "void")
		is(wire.KindCreateDir, "/a", &no, "already_exists")
		is(wire.KindCreateDir, "/a/b/c", nil, "void")
		is(wire.KindCreateDir, "/a/b/c", &yes, "void")
		if err := os.WriteFile(d.dir+"/f", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("a", d.dir+"/link"); err != nil {
			t.Fatal(err)
		}
		is(wire.KindCreateDir, "/f", &no, "already_exists")
		is(wire.KindCreateDir, "/f", &yes, "not_directory")
		is(wire.KindCreateDir, "/f/x", &yes, "not_directory")
		is(wire.KindCreateDir, "/link/d", &yes, "void")
		is(wire.KindRemove, "/missing", &yes, "not_found")
		is(wire.KindRemove, "/a", nil, "is_directory")
		is(wire.KindRemove, "/a", &no, "is_directory")
		d.names("a", "f", "link")
		is(wire.KindRemove, "/link", &yes, "void")
		d.names("a", "f")
		is(wire.KindRemove, "/a", &yes, "void")
		is(wire.KindRemove, "/f", nil, "void")
		d.names()
	})
}

func TestTemporariesAreForTheirOwnerAlone(t *testing.T) {
	onDisk(t, func(d *disk) {
		for _, c := range []struct {
			kind wire.Kind
			args wire.TempArgs
			mode os.FileMode
		}{
			{wire.KindCreateTempDir, wire.TempArgs{Prefix: "my dir-"}, os.ModeDir | 0o700},
			{wire.KindCreateTempDir, wire.TempArgs{}, os.ModeDir | 0o700},
			{wire.KindCreateTempFile, wire.TempArgs{Prefix: "a*", Suffix: ".txt"}, 0o600},
		} {
			w, ok := d.answer(c.kind, c.args).(wire.WriteOutcome)
			if !ok {
				t.Fatalf("%+v", c)
			}
			i, err := os.Lstat(w.CanonicalPath)
			if err != nil || i.Mode() != c.mode || !strings.HasPrefix(i.Name(), c.args.Prefix) || !strings.HasSuffix(i.Name(), c.args.Suffix) {
				t.Errorf("%+v: %v, %v", w, i, err)
			}
			if real, err := filepath.EvalSymlinks(w.CanonicalPath); real != w.CanonicalPath {
				t.Errorf("%q is really %q (%v)", w.CanonicalPath, real, err)
			}
		}
		for _, bad := range []string{"a/b", "../a", "a\x00"} {
			d.fails(wire.CodeInvalid, wire.KindCreateTempDir, wire.TempArgs{Prefix: bad})
			d.fails(wire.CodeInvalid, wire.KindCreateTempFile, wire.TempArgs{Prefix: "a", Suffix: bad})
		}
	})
}

// deadMount is a system in which everything that is opened by a path with "dead"
// in it, and every rename to such a name, waits for release.
type deadMount struct {
	posix.System
	release chan struct{}
}

func (m deadMount) Open(dir int, name string, flags int, mode uint32) (int, error) {
	if strings.Contains(name, "dead") {
		<-m.release
	}
	return m.System.Open(dir, name, flags, mode)
}

func (m deadMount) Link(fd, dir int, name string) error {
	if strings.Contains(name, "slow") {
		<-m.release
	}
	return m.System.Link(fd, dir, name)
}

func TestADeadMountIsAnsweredAtTheDeadlineAndHoldsUpNothing(t *testing.T) {
	var m deadMount
	onDiskWith(t, func() posix.Calls { m.release = make(chan struct{}); return m }, func(d *disk) {
		if err := os.WriteFile(d.dir+"/f", []byte("fine"), 0o644); err != nil {
			t.Fatal(err)
		}
		d.d.SetMaxInflight(16)
		path := func(name string) string { return fmt.Sprintf(`{"path":%q}`, d.dir+name) }
		d.d.Instruct(askWithin("read", wire.KindReadTextFile, path("/dead/f"), time.Second))
		d.d.Instruct(askWithin("look", wire.KindCanonicalPath, path("/dead"), time.Second))
		d.d.Instruct(askWithin("remove", wire.KindRemove, path("/dead/f"), time.Second))
		content := func(id, name string) {
			args, err := wire.AppendArgs(nil, wire.WriteArgs{Path: d.dir + name, ContentLen: 3, SHA256: sum256("new")})
			if err != nil {
				t.Fatal(err)
			}
			d.d.Instruct(askWithin(id, wire.KindWriteFile, string(args), time.Second))
			for _, p := range frames(id, "new", 2) {
				d.d.Payload(p)
			}
		}
		content("before", "/dead/f")
		content("past", "/slow")
		id := d.do(wire.KindReadTextFile, wire.PathArgs{Path: d.dir + "/f"})
		if d.outcome(id); d.ear.text(id, wire.ChunkData) != "fine" {
			t.Error("a sound file had to wait")
		}
		time.Sleep(time.Minute)
		for id, want := range map[string]string{
			"read": "timeout", "look": "timeout", // nothing was to change
			"before": "timeout",         // it never got to its step
			"past":   "outcome_unknown", // it may land yet
			"remove": "outcome_unknown",
		} {
			if got := describe(d.outcome(id)); got != want {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
		close(m.release)
		synctest.Wait()
		d.names("f", "slow")
	})
}
