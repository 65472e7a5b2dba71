package files_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

func TestGuardedVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		path    string
		want    func(dir, id string) files.Expect
		code    wire.ErrorCode // "": success
		content string         // of f afterwards
		created bool
	}{
		"the object":       {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: id} }, "", "new", false},
		"any object":       {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f"} }, "", "new", false},
		"a bare number":    {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: bare(id)} }, "", "new", false},
		"through a link":   {"/link", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: id} }, "", "new", false},
		"linked folder":    {"/dirlink/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: id} }, "", "new", false},
		"a new file":       {"/new", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/new"} }, "", "old", true},
		"exclusively new":  {"/new", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/new", Exclusive: true} }, "", "old", true},
		"through dangling": {"/dangling", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/new"} }, "", "old", true},

		"another object":        {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: "1.2"} }, wire.CodePreconditionFailed, "old", false},
		"another bare number":   {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: "1"} }, wire.CodePreconditionFailed, "old", false},
		"another birth":         {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", FileID: bare(id) + ".5"} }, wire.CodePreconditionFailed, "old", false},
		"nothing there":         {"/new", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/new", FileID: id} }, wire.CodePreconditionFailed, "old", false},
		"another path":          {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/g", FileID: id} }, wire.CodePreconditionFailed, "old", false},
		"the link as canonical": {"/link", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/link"} }, wire.CodePreconditionFailed, "old", false},
		"a linked folder in it": {"/dirlink/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/dirlink/f"} }, wire.CodePreconditionFailed, "old", false},
		"not canonical":         {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/x/../f"} }, wire.CodePreconditionFailed, "old", false},
		"no path":               {"/f", func(d, id string) files.Expect { return files.Expect{} }, wire.CodePreconditionFailed, "old", false},
		"no folder":             {"/no/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/no/f"} }, wire.CodePreconditionFailed, "old", false},
		"exclusive, but there":  {"/f", func(d, id string) files.Expect { return files.Expect{CanonicalPath: d + "/f", Exclusive: true} }, wire.CodeAlreadyExists, "old", false},
		"a link not to follow": {"/link", func(d, id string) files.Expect {
			return files.Expect{CanonicalPath: d + "/f", FileID: id, NoFollow: true}
		}, wire.CodePreconditionFailed, "old", false},
		"no link, not to follow": {"/f", func(d, id string) files.Expect {
			return files.Expect{CanonicalPath: d + "/f", FileID: id, NoFollow: true}
		}, "", "new", false},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			l, dir := newLayer(t, files.Config{Journal: j}), folder(t)
			id := mustPut(t, l, dir+"/f", "old", replace).FileID
			must(t, os.Symlink("f", dir+"/link"))
			must(t, os.Symlink("new", dir+"/dangling"))
			must(t, os.Symlink(".", dir+"/dirlink"))
			r, err := put(l, dir+c.path, "new", guarded(c.want(dir, id)))
			names := []string{"dangling", "dirlink", "f", "link"}
			if c.code == "" {
				must(t, err)
				if *r.Created != c.created {
					t.Errorf("%+v", r)
				}
				if c.created {
					names = append(names, "new")
					wantContent(t, dir+"/new", "new")
				}
			} else {
				wantCode(t, err, c.code)
			}
			wantContent(t, dir+"/f", c.content)
			wantNames(t, dir, names...)
			if n := j.open(); n != 0 {
				t.Errorf("%d entries left in the journal", n)
			}
		})
	}
}

// What does not hold is said as such also where nothing could be written anyway.
func TestAMismatchIsToldBeforeAnythingElse(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), folder(t)
	write(t, dir+"/f", "old", 0o644)
	must(t, os.Mkdir(dir+"/folder", 0o755))
	must(t, mkfifo(dir+"/fifo"))
	must(t, os.Symlink("loop", dir+"/loop"))
	must(t, os.Symlink("/proc/none", dir+"/away"))
	for name, want := range map[string]struct {
		path   string
		expect files.Expect
		code   wire.ErrorCode
	}{
		"a looping link not to follow":        {"/loop", files.Expect{CanonicalPath: dir + "/loop", NoFollow: true}, wire.CodePreconditionFailed},
		"a looping link":                      {"/loop", files.Expect{CanonicalPath: dir + "/loop"}, wire.CodePreconditionFailed},
		"a link to where no file can be made": {"/away", files.Expect{CanonicalPath: dir + "/away", NoFollow: true}, wire.CodePreconditionFailed},
		"the same, expected elsewhere":        {"/away", files.Expect{CanonicalPath: dir + "/away"}, wire.CodePreconditionFailed},
		"a folder that became a file":         {"/f/x", files.Expect{CanonicalPath: dir + "/f/x"}, wire.CodePreconditionFailed},
		"an object that became a folder":      {"/folder", files.Expect{CanonicalPath: dir + "/folder", FileID: "1.2"}, wire.CodePreconditionFailed},
		"an object that became a FIFO":        {"/fifo", files.Expect{CanonicalPath: dir + "/fifo", FileID: "1.2"}, wire.CodePreconditionFailed},
		"a folder, exclusively":               {"/folder", files.Expect{CanonicalPath: dir + "/folder", Exclusive: true}, wire.CodeAlreadyExists},
		"any object, but a folder":            {"/folder", files.Expect{CanonicalPath: dir + "/folder"}, wire.CodeIsDirectory},
		"nothing where none can be made":      {"/proc/none", files.Expect{CanonicalPath: "/proc/none", FileID: "1.2"}, wire.CodePreconditionFailed},
		"something where none can be made":    {"/proc/version", files.Expect{CanonicalPath: "/proc/version", Exclusive: true}, wire.CodeAlreadyExists},
	} {
		t.Run(name, func(t *testing.T) {
			path := dir + want.path
			if strings.HasPrefix(want.path, "/proc/") {
				if path = want.path; runtime.GOOS != "linux" {
					t.Skip("no such file system here")
				}
			}
			d, err := l.DraftGuarded(path, want.expect)
			if err == nil {
				d.Discard()
			}
			wantCode(t, err, want.code)
		})
	}
	wantContent(t, dir+"/f", "old")
	wantNames(t, dir, "away", "f", "fifo", "folder", "loop")
}

func bare(id string) string { ino, _, _ := strings.Cut(id, "."); return ino }

func TestOneOfTwentyGuardedWritersWins(t *testing.T) {
	l, dir := newLayer(t, files.Config{}), quick(t)
	path := dir + "/f"
	id := mustPut(t, l, path, "first", replace).FileID
	for round := range long(40, 300) {
		receipts := make([]files.Receipt, 20)
		errs := race(20, func(i int) (files.Receipt, error) {
			r, err := put(l, path, strings.Repeat(fmt.Sprintf("%d-%d ", round, i), 2000), guarded(files.Expect{CanonicalPath: path, FileID: id}))
			receipts[i] = r
			return r, err
		})
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				t.Fatalf("round %d: %d and %d both won", round, won, i)
			case err == nil:
				won = i
			default:
				wantCode(t, err, wire.CodePreconditionFailed)
			}
		}
		if won < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		wantContent(t, path, strings.Repeat(fmt.Sprintf("%d-%d ", round, won), 2000))
		id = receipts[won].FileID
	}
	wantNames(t, dir, "f")
}

func init() { parts["renamer"] = renamer }

// renamer replaces a file by rename, as often as each line of its input says, and
// answers with the number of its last object.
func renamer() {
	dir := os.Args[1]
	last := 0
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var n int
		if _, err := fmt.Sscan(in.Text(), &n); err != nil {
			os.Exit(1)
		}
		for range n {
			last++
			if os.WriteFile(dir+"/outside", []byte(fmt.Sprint("outside ", last)), 0o644) != nil || os.Rename(dir+"/outside", dir+"/f") != nil {
				os.Exit(1)
			}
		}
		fmt.Println(last)
	}
}

// Every round lets another process replace the target a few times while a guarded
// write goes for the object that was there at some moment.
func TestGuardedAgainstAnOutsideProcess(t *testing.T) {
	j := &journal{}
	l, dir := newLayer(t, files.Config{Journal: j}), quick(t)
	path := dir + "/f"
	other := another("renamer", dir)
	in, err := other.StdinPipe()
	must(t, err)
	out, err := other.StdoutPipe()
	must(t, err)
	must(t, other.Start())
	defer other.Wait()
	defer in.Close()
	answers := bufio.NewReader(out)
	rename := func(n int) { fmt.Fprintln(in, n) }
	last := func() (n int) {
		line, err := answers.ReadString('\n')
		must(t, err)
		_, err = fmt.Sscan(line, &n)
		must(t, err)
		return n
	}
	rename(1)
	last()
	won, lost := 0, 0
	for round := range long(1500, 10_000) {
		// Which object is expected, and whose number it is, is read from one handle.
		rename(round % 7)
		var id, content string
		for content == "" {
			id, content = observe(t, path)
		}
		mine := fmt.Sprintf("guarded %d for %s", round, content)
		_, err := put(l, path, mine, guarded(files.Expect{CanonicalPath: path, FileID: id}))
		final := fmt.Sprint("outside ", last())
		if n := round % 7; n == 0 {
			final = content // nobody interfered
			if err != nil {
				t.Fatalf("round %d: refused though nothing happened: %v", round, err)
			}
		}
		b, rerr := os.ReadFile(path)
		must(t, rerr)
		now := string(b)
		switch {
		case err == nil && content == final && now == mine:
			won++
		case err == nil && content != final && now == final:
			won++
		case err != nil && content != final && now == final && posix.CodeOf(err) == wire.CodePreconditionFailed:
			lost++
		default:
			t.Fatalf("round %d: expected %q, verdict %v, the other's last is %q, in place is %q", round, content, err, final, now)
		}
	}
	t.Logf("%d won, %d refused", won, lost)
	if won == 0 || lost == 0 {
		t.Errorf("%d won, %d refused: the race was none", won, lost)
	}
	wantNames(t, dir, "f")
	if n := j.open(); n != 0 {
		t.Errorf("%d entries left in the journal", n)
	}
}

// observe reads identity and content of one object; "" if it was not whole yet.
func observe(t *testing.T, path string) (id, content string) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	st, err := posix.StatFd(int(f.Fd()))
	must(t, err)
	o := posix.Object{FD: int(f.Fd()), Stat: st}
	b, err := io.ReadAll(f)
	must(t, err)
	return o.FileID(posix.System{}), string(b)
}
