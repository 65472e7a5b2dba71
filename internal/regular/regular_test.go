package regular_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sema-agent/device-executor/internal/regular"
)

func TestWhatIsNoRegularFileIsRefusedAtOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "r") // the name of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for link, to := range map[string]string{"link to a fifo": at("fifo"), "link to a device": "/dev/zero"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{at("fifo"), at("socket"), at("link to a fifo"), at("link to a device"), dir, "/dev/zero"} {
		_, err := regular.Read(path, 1<<10)
		var told *fs.PathError
		if !errors.Is(err, regular.ErrOther) || !errors.As(err, &told) || told.Path != path {
			t.Errorf("%s: %v", path, err)
		}
		if f, err := regular.OpenFile(path, os.O_RDWR|os.O_APPEND, 0o600); err == nil {
			_ = f.Close()
			t.Errorf("%s was opened for writing", path)
		}
	}
	if _, err := regular.Open(at("missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
}

func TestAFileIsReadWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		if data, err := regular.Read(p, 8); err != nil || string(data) != "12345678" {
			t.Errorf("%q, %v", data, err)
		}
	}
	if _, err := regular.Read(path, 7); err == nil || !strings.Contains(err.Error(), "larger than 7 bytes") {
		t.Errorf("a file that is too large: %v", err)
	}
}
