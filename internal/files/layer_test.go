package files_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/files/posix"
	"github.com/sema-agent/device-executor/wire"
)

// newLayer makes a layer whose temporary folder is one of the test's own.
func newLayer(t testing.TB, c files.Config) *files.Layer {
	t.Helper()
	if c.TempDir == "" {
		c.TempDir = t.TempDir()
	}
	l, err := files.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// folder is a real path of a new folder.
func folder(t testing.TB) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// quick is a folder on a file system in memory, where there is one: for tests that
// write thousands of times.
func quick(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "files-test-")
	if err != nil {
		return folder(t)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// step is one face of a draft.
type step func(context.Context, *files.Draft) (files.Receipt, error)

func replace(ctx context.Context, d *files.Draft) (files.Receipt, error) { return d.Replace(ctx) }
func create(ctx context.Context, d *files.Draft) (files.Receipt, error)  { return d.Create(ctx) }
func appendTo(ctx context.Context, d *files.Draft) (files.Receipt, error) {
	return files.Receipt{}, d.Append(ctx)
}
func guarded(want files.Expect) step {
	return func(ctx context.Context, d *files.Draft) (files.Receipt, error) { return d.Guarded(ctx, want) }
}

// put drafts content for a path and takes a step with it.
func put(l *files.Layer, path, content string, s step) (files.Receipt, error) {
	d, err := l.Draft(path)
	if err != nil {
		return files.Receipt{}, err
	}
	defer d.Discard()
	if _, err := d.Write([]byte(content)); err != nil {
		return files.Receipt{}, err
	}
	return s(context.Background(), d)
}

func mustPut(t testing.TB, l *files.Layer, path, content string, s step) files.Receipt {
	t.Helper()
	r, err := put(l, path, content, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantCode(t testing.TB, err error, code wire.ErrorCode) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %s", code)
	} else if got := posix.CodeOf(err); got != code {
		t.Errorf("%s, want %s: %v", got, code, err)
	}
}

func wantContent(t testing.TB, path, content string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	} else if string(b) != content {
		t.Errorf("%s holds %.60q (%d bytes), want %.60q", path, b, len(b), content)
	}
}

// wantNames checks all names in a folder, hidden ones included.
func wantNames(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func write(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// without is a system that lacks some calls.
type without struct {
	posix.System
	nameless, exchange, renameNew, copies, ask bool
}

func (w without) OpenNameless(dir int, mode uint32) (int, error) {
	if w.nameless {
		return -1, unix.EOPNOTSUPP
	}
	return w.System.OpenNameless(dir, mode)
}

func (w without) Exchange(d1 int, n1 string, d2 int, n2 string) error {
	if w.exchange {
		return unix.EINVAL
	}
	return w.System.Exchange(d1, n1, d2, n2)
}

func (w without) RenameNew(d1 int, n1 string, d2 int, n2 string) error {
	if w.renameNew {
		return unix.EINVAL
	}
	return w.System.RenameNew(d1, n1, d2, n2)
}

func (w without) Copy(dst, src, n int) (int, error) {
	if w.copies {
		return 0, unix.EXDEV
	}
	return w.System.Copy(dst, src, n)
}

func (w without) WrittenElsewhere(fd int) (bool, error) {
	if w.ask {
		return false, unix.EINVAL
	}
	return w.System.WrittenElsewhere(fd)
}

// systems are the real system and some poorer ones.
func systems() map[string]posix.Calls {
	return map[string]posix.Calls{
		"all calls":             posix.System{},
		"no nameless files":     without{nameless: true},
		"no exchange":           without{exchange: true},
		"no renameat2, no rest": without{nameless: true, exchange: true, renameNew: true, copies: true, ask: true},
	}
}

// journal keeps entries in memory.
type journal struct {
	mu      sync.Mutex
	next    int
	entries map[int]files.Entry
}

func (j *journal) Record(e files.Entry) (func(), error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries == nil {
		j.entries = map[int]files.Entry{}
	}
	j.next++
	key := j.next
	j.entries[key] = e
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.entries, key)
	}, nil
}

func (j *journal) open() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries)
}

// long chooses how often a test goes round: short by default, long when
// SEMA_LONG_TESTS is set, as scripts/torture does.
func long(short, full int) int {
	if os.Getenv("SEMA_LONG_TESTS") != "" {
		return full
	}
	return short
}

// meanwhile does something over and over until it is stopped.
func meanwhile(do func()) (stop func()) {
	ended := make(chan struct{})
	var adversary sync.WaitGroup
	adversary.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				do()
			}
		}
	})
	return func() {
		close(ended)
		adversary.Wait()
	}
}

func inode(t testing.TB, path string) uint64 {
	t.Helper()
	st, err := posix.StatAt(posix.CWD, path)
	must(t, err)
	return st.Ino
}

func mkfifo(path string) error { return unix.Mkfifo(path, 0o644) }
