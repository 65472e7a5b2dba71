package posix

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWithoutOpenat2TheAnswerIsTheSame(t *testing.T) {
	dir := realFolder(t)
	for _, err := range []error{os.MkdirAll(dir+"/a/b", 0o755), os.Symlink("a", dir+"/link"),
		os.Symlink("b", dir+"/a/link"), os.WriteFile(dir+"/f", nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, good := range map[string]bool{
		"": true, "/": true, "/a/b": true, "/a//b/": true,
		"/link": false, "/link/b": false, "/a/link": false, "/missing": false, "/f": false, "/f/x": false,
	} {
		if path != "/" {
			path = dir + path
		}
		for name, open := range map[string]func(string) (int, error){"openat2": System{}.OpenNoLinks, "by hand": System{}.walkNoLinks} {
			fd, err := open(path)
			if (err == nil) != good {
				t.Errorf("%s %q: %v, want it to work: %v", name, path, err, good)
			}
			if err != nil {
				continue
			}
			real, err := RealPath(fd)
			if err != nil || real != filepath.Clean(path) {
				t.Errorf("%s %q: really %q, %v", name, path, real, err)
			}
			unix.Close(fd)
		}
	}
}

func TestWithoutStatxOnlyTheBirthIsMissing(t *testing.T) {
	dir := realFolder(t)
	if err := os.Symlink("nowhere", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	want, err := StatAt(CWD, dir+"/link")
	if err != nil {
		t.Fatal(err)
	}
	want.BirthNs = 0
	if got, err := stat(CWD, dir+"/link", unix.AT_SYMLINK_NOFOLLOW); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	want, err = StatAt(CWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	want.BirthNs = 0
	fd, err := System{}.Open(CWD, dir, Handle, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if got, err := stat(fd, "", unix.AT_EMPTY_PATH); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestAFileIDWithoutABirthCarriesTheGeneration(t *testing.T) {
	path := realFolder(t) + "/f"
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := Hold(System{}, CWD, path)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	withBirth := o.FileID(System{})
	o.BirthNs = 0
	id := o.FileID(System{})
	if _, ok := generation(System{}, o.FD); !ok {
		if strings.Contains(id, ".") {
			t.Errorf("%s, and there is no generation", id)
		}
		t.Skip("this file system counts no generations")
	}
	ino, rest, ok := strings.Cut(id, ".")
	if !ok || id == withBirth || !strings.HasPrefix(withBirth, ino+".") || rest == "" {
		t.Errorf("%s, with a birth %s", id, withBirth)
	}
	if !o.Is(System{}, id) || !o.Is(System{}, ino) || o.Is(System{}, withBirth) || o.Is(System{}, "") {
		t.Error("an object does not know its names")
	}
}

func TestTheRealPathOfARemovedObjectIsNone(t *testing.T) {
	path := realFolder(t) + "/f (deleted)"
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := Hold(System{}, CWD, path)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if real, err := RealPath(o.FD); err != nil || real != path {
		t.Errorf("%q, %v", real, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if real, err := RealPath(o.FD); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%q, %v", real, err)
	}
}
