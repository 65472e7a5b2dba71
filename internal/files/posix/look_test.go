package posix

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forReading are handles as macOS has them.
var forReading = lookFirst{
	file: unix.O_RDONLY | unix.O_NONBLOCK, folder: Folder, link: HandleNoFollow,
}

// refusing refuses to open the files with these names.
type refusing struct {
	System
	names []string
}

func (r refusing) Open(dir int, name string, flags int, mode uint32) (int, error) {
	for _, n := range r.names {
		if filepath.Base(name) == n {
			return -1, unix.EACCES
		}
	}
	return r.System.Open(dir, name, flags, mode)
}

func realFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLookingFirstHoldsTheSameAndOpensNothingSpecial(t *testing.T) {
	dir := realFolder(t)
	for _, err := range []error{
		os.MkdirAll(dir+"/a/b", 0o755), os.WriteFile(dir+"/a/f", []byte("f"), 0o644), os.Link(dir+"/a/f", dir+"/a/b/g"),
		os.WriteFile(dir+"/secret", nil, 0o200), syscall.Mkfifo(dir+"/fifo", 0o600),
		os.Symlink("a/../a/f", dir+"/link"), os.Symlink(dir+"/link", dir+"/a/second"), os.Symlink("fifo", dir+"/pipe"),
		os.Symlink("a/", dir+"/folder"), os.Symlink("nowhere", dir+"/dangling"), os.Symlink("loop", dir+"/loop"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := refusing{names: []string{"secret"}}
	type end struct {
		path string // under dir
		held bool
		err  error
	}
	for name, ends := range map[string][2]end{ // itself, and where it leads
		"a":        {{"/a", true, nil}, {"/a", true, nil}},
		"a/f":      {{"/a/f", true, nil}, {"/a/f", true, nil}},
		"a/b/g":    {{"/a/b/g", true, nil}, {"/a/b/g", true, nil}},
		"secret":   {{"/secret", false, nil}, {"/secret", false, nil}},
		"fifo":     {{"/fifo", false, nil}, {"/fifo", false, nil}},
		"pipe":     {{"/pipe", true, nil}, {"/fifo", false, nil}},
		"link":     {{"/link", true, nil}, {"/a/f", true, nil}},
		"a/second": {{"/a/second", true, nil}, {"/a/f", true, nil}},
		"folder":   {{"/folder", true, nil}, {"/a", true, nil}},
		"dangling": {{"/dangling", true, nil}, {err: unix.ENOENT}},
		"loop":     {{"/loop", true, nil}, {err: unix.ELOOP}},
		"missing":  {{err: unix.ENOENT}, {err: unix.ENOENT}},
		"a/f/x":    {{err: unix.ENOTDIR}, {err: unix.ENOTDIR}},
	} {
		for i, want := range ends {
			// By the whole path, and by a name in an open folder.
			parent, err := OpenDir(c, CWD, dir)
			if err != nil {
				t.Fatal(err)
			}
			for at, path := range map[int]string{CWD: dir + "/" + name, parent.FD: name} {
				began := time.Now()
				o, err := forReading.hold(c, at, path, i == 1)
				if !errors.Is(err, want.err) {
					t.Errorf("%s, following %v: %v, want %v", path, i == 1, err, want.err)
				}
				if time.Since(began) > time.Second {
					t.Errorf("%s: waited", path)
				}
				if err != nil {
					continue
				}
				real, err := o.RealPath()
				if err != nil || real != dir+want.path || (o.FD >= 0) != want.held {
					t.Errorf("%s, following %v: %q, %v, held %v; want %+v", path, i == 1, real, err, o.FD >= 0, want)
				}
				o.Close()
			}
			parent.Close()
		}
	}
}

func TestWhatCannotBeHeldIsOpenedOnlyWhileItIsTheSame(t *testing.T) {
	dir := realFolder(t)
	path := dir + "/f"
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := forReading.hold(refusing{names: []string{"f"}}, CWD, path, true)
	if err != nil || o.FD >= 0 {
		t.Fatalf("%+v, %v", o, err)
	}
	fd, err := o.Open(System{}, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if err := errors.Join(os.Rename(path, dir+"/moved"), os.WriteFile(path, []byte("new"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if fd, err := o.Open(System{}, unix.O_RDONLY); !errors.Is(err, unix.ENOENT) {
		t.Errorf("another file was opened: %d, %v", fd, err)
	}
	if real, err := o.RealPath(); !errors.Is(err, unix.ENOENT) {
		t.Errorf("another file's path: %q, %v", real, err)
	}
	o.Close()
}

// swapping puts a FIFO in the place of a file between the look and the opening.
type swapping struct {
	System
	swap func()
}

func (s swapping) Open(dir int, name string, flags int, mode uint32) (int, error) {
	s.swap()
	return s.System.Open(dir, name, flags, mode)
}

func TestAnotherKindOfObjectThatComesInMeanwhileIsLookedAtAnew(t *testing.T) {
	dir := realFolder(t)
	path := dir + "/f"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := swapping{swap: func() {
		_ = errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))
	}}
	o, err := forReading.hold(c, CWD, path, true)
	if err != nil || o.FD >= 0 || o.What() != "a FIFO" {
		t.Errorf("%+v, %v", o, err)
	}
}
