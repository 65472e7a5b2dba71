package files_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

func TestAppendsAreWhole(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/a/f"
	mustPut(t, l, path, "one\n", appendTo)
	old, err := os.Open(path) // an inode in use is not given away
	must(t, err)
	defer old.Close()
	before := inode(t, path)
	must(t, os.Chmod(path, 0o640))
	mustPut(t, l, path, "two\n", appendTo)
	wantContent(t, path, "one\ntwo\n")
	if i, err := os.Stat(path); err != nil || i.Mode() != 0o640 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	if asksForWriters(t, path) && inode(t, path) == before {
		t.Error("the file was written in place: a reader could see a part")
	}
	before = inode(t, path)
	mustPut(t, l, path, "", appendTo)
	if inode(t, path) != before {
		t.Error("nothing was appended, and the file was replaced")
	}
	wantContent(t, path, "one\ntwo\n")
	wantNames(t, dir+"/a", "f")
}

// asksForWriters reports whether this system can tell who has a file open.
func asksForWriters(t *testing.T, path string) bool {
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	_, err = posix.System{}.WrittenElsewhere(int(f.Fd()))
	return err == nil
}

func TestAFileHeldOpenGetsBothWritersLines(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	path := dir + "/log"
	held, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(t, err)
	defer held.Close()
	want := ""
	for i := range 5 {
		_, err := fmt.Fprintf(held, "theirs %d\n", i)
		must(t, err)
		mustPut(t, l, path, fmt.Sprintf("ours %d\n", i), appendTo)
		want += fmt.Sprintf("theirs %d\nours %d\n", i, i)
	}
	wantContent(t, path, want)
	wantNames(t, dir, "log")
}

func TestAWriterThatComesInMeanwhileLosesNothing(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, path string){
		"opens and stays": func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			t.Cleanup(func() { f.Close() })
			_, err = f.WriteString("theirs\n")
			must(t, err)
		},
		"writes and goes": func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			_, err = f.WriteString("theirs\n")
			must(t, err)
			must(t, f.Close())
		},
		"replaces": func(t *testing.T, path string) { theirs(t, path, "old\ntheirs\n")() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			path := dir + "/log"
			write(t, path, "old\n", 0o644)
			if !asksForWriters(t, path) {
				t.Skip("every file counts as held here")
			}
			s := &scripted{before: map[int]func(){1: func() { meanwhile(t, path) }}}
			l := newLayer(t, files.Config{Calls: s})
			mustPut(t, l, path, "ours\n", appendTo)
			wantContent(t, path, "old\ntheirs\nours\n")
			wantNames(t, dir, "log")
		})
	}
}

// lastWords is a system on which a writer opens a file just before it is exchanged,
// and writes and leaves just when it is asked who has the file open.
type lastWords struct {
	posix.System
	path   string
	writer *os.File
}

func (w *lastWords) Exchange(d1 int, n1 string, d2 int, n2 string) (err error) {
	if w.writer == nil {
		if w.writer, err = os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
			return err
		}
	}
	return w.System.Exchange(d1, n1, d2, n2)
}

func (w *lastWords) WrittenElsewhere(fd int) (bool, error) {
	if w.writer != nil {
		_, _ = w.writer.WriteString("theirs\n") // to a closed file from the second time on
		_ = w.writer.Close()
	}
	return w.System.WrittenElsewhere(fd)
}

func TestAWriterThatIsLeavingLosesNoLastWords(t *testing.T) {
	dir := folder(t)
	path := dir + "/log"
	write(t, path, "old\n", 0o644)
	if !asksForWriters(t, path) {
		t.Skip("every file counts as held here")
	}
	l := newLayer(t, files.Config{Calls: &lastWords{path: path}})
	mustPut(t, l, path, "ours\n", appendTo)
	wantContent(t, path, "old\ntheirs\nours\n")
	wantNames(t, dir, "log")
}

func TestALargeFileIsNotCopied(t *testing.T) {
	dir := folder(t)
	path := dir + "/large"
	write(t, path, "", 0o644)
	const size = 1 << 30
	must(t, os.Truncate(path, size)) // sparse
	l := newLayer(t, files.Config{Calls: noCopy{without{}, t}})
	before := inode(t, path)
	mustPut(t, l, path, "the end", appendTo)
	if inode(t, path) != before {
		t.Error("another object is in place")
	}
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	b := make([]byte, 100)
	if n, _ := f.ReadAt(b, size); string(b[:n]) != "the end" {
		t.Errorf("ends with %q", b[:n])
	}
	wantNames(t, dir, "large")
}

// noCopy is a system on which copying in the kernel is a failed test.
type noCopy struct {
	without
	t *testing.T
}

func (noCopy) Clone(int, int) error { return unix.EOPNOTSUPP }

func (c noCopy) Copy(int, int, int) (int, error) {
	c.t.Error("the file is copied")
	return 0, unix.EIO
}

func TestAnAppendToALinkOrAHoleInTheWay(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	must(t, os.Symlink("f", dir+"/link"))
	must(t, os.Symlink("new", dir+"/dangling"))
	must(t, os.Mkdir(dir+"/folder", 0o755))
	must(t, mkfifo(dir+"/fifo"))
	mustPut(t, l, dir+"/link", ", new", appendTo)
	mustPut(t, l, dir+"/dangling", "made", appendTo)
	wantContent(t, dir+"/f", "old, new")
	wantContent(t, dir+"/new", "made")
	_, err := put(l, dir+"/folder", "x", appendTo)
	wantCode(t, err, wire.CodeIsDirectory)
	_, err = put(l, dir+"/fifo", "x", appendTo)
	wantCode(t, err, wire.CodeInvalid)
	wantNames(t, dir, "dangling", "f", "fifo", "folder", "link", "new")
}

func TestTwentyAppendsAtOnceAllArrive(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	for _, err := range race(20, func(i int) (files.Receipt, error) {
		return put(l, dir+"/log", strings.Repeat(fmt.Sprint(i%10), 99)+"\n", appendTo)
	}) {
		must(t, err)
	}
	b, err := os.ReadFile(dir + "/log")
	must(t, err)
	for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if len(line) != 99 || strings.Count(line, line[:1]) != 99 {
			t.Errorf("a mixed line %q", line)
		}
	}
	if len(b) != 20*100 {
		t.Errorf("%d bytes", len(b))
	}
}

// sharing is a system whose files can share their content.
type sharing struct {
	posix.System
	n *int
}

func (s sharing) Clone(dst, src int) error {
	*s.n++
	for {
		if n, err := s.Copy(dst, src, 1<<30); err != nil || n == 0 {
			_, _ = unix.Seek(dst, 0, unix.SEEK_SET) // a real one moves no offset
			return err
		}
	}
}

func TestALargeFileThatCanBeSharedIsReplaced(t *testing.T) {
	dir, shared := quick(t), 0
	path := dir + "/large"
	write(t, path, "the start", 0o644)
	const size = 65 << 20
	must(t, os.Truncate(path, size))
	if !asksForWriters(t, path) {
		t.Skip("every file counts as held here")
	}
	old, err := os.Open(path)
	must(t, err)
	defer old.Close()
	before := inode(t, path)
	l := newLayer(t, files.Config{Calls: sharing{n: &shared}})
	mustPut(t, l, path, "the end", appendTo)
	if shared != 1 || inode(t, path) == before {
		t.Errorf("shared %d times; replaced: %v", shared, inode(t, path) != before)
	}
	if i, err := os.Stat(path); err != nil || i.Size() != size+7 {
		t.Errorf("%v, %v", i.Size(), err)
	}
	if i, err := old.Stat(); err != nil || i.Size() != size {
		t.Errorf("the old object was written to: %v, %v", i.Size(), err)
	}
}
