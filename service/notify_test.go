package service

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSystemdHearsOfTheExecutor(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") // short: a socket's name has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv(notifyVariable, path)
	n := TakeNotifier()
	if _, there := os.LookupEnv(notifyVariable); there {
		t.Error("commands would inherit the socket")
	}
	for _, send := range []func() error{
		n.Ready,
		func() error { return n.Status("active, 2 instructions") },
		func() error { return n.Status("active, 2 instructions") }, // known
		func() error { return n.Status("two\nlines") },
		n.Stopping,
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 4096)
	for _, want := range []string{"READY=1", "STATUS=active, 2 instructions", "STATUS=two lines", "STOPPING=1"} {
		if err := socket.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		size, err := socket.Read(buffer)
		if err != nil || string(buffer[:size]) != want {
			t.Errorf("heard %q, %v; want %q", buffer[:size], err, want)
		}
	}
}

func TestWithoutSystemdNothingIsSaid(t *testing.T) {
	t.Setenv(notifyVariable, "")
	n := TakeNotifier()
	if err := n.Ready(); err != nil {
		t.Error(err)
	}
}

func TestASocketThatIsGoneIsAnError(t *testing.T) {
	t.Setenv(notifyVariable, filepath.Join(t.TempDir(), "gone"))
	if err := TakeNotifier().Ready(); err == nil || !strings.Contains(err.Error(), "READY=1") {
		t.Errorf("%v", err)
	}
}
