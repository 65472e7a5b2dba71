// Package userunit lets tests meet systemd: run below a user manager of their
// own, which scripts/with-systemd-user makes, and hear what a service tells it.
//
// Such a test has two halves. The outer one calls Below, which runs the inner
// ones, whose names begin with TestInside, as another user in another session.
package userunit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// program names, in the environment of the inner half, what is to be a service.
const program = "SEMA_TEST_PROGRAM"

// lacking is the script's exit code where the machine cannot run a manager.
const lacking = 77

// hearing is how long a message may take that was sent already.
const hearing = 5 * time.Second

// Program returns the program to run as a service. It skips the test where this
// is not the inside.
func Program(t *testing.T) string {
	t.Helper()
	path := os.Getenv(program)
	if path == "" {
		t.Skip("runs below a user manager that another test makes")
	}
	return path
}

// Folder makes a folder that other users can enter: the inner half runs as one.
func Folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "userunit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // the test's own
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// CopyTests puts a copy of this test binary where another user can run it.
func CopyTests(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Below runs the inner tests of a binary by the script, with path as Program. It
// skips the test on a machine that cannot, unless everything is required to run.
func Below(t *testing.T, script, path, tests string) {
	t.Helper()
	if os.Getenv(program) != "" {
		t.Skip("this is the inside")
	}
	out, err := exec.Command(script, program+"="+path, tests, "-test.v", "-test.run=^TestInside").CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == lacking && os.Getenv("SEMA_TEST_REQUIRE_ALL") == "":
		t.Skipf("%s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case !bytes.Contains(out, []byte("--- PASS: TestInside")) || bytes.Contains(out, []byte("--- SKIP")):
		t.Fatalf("the inside did not run:\n%s", out)
	}
	t.Logf("%s", out)
}

// RestartAfter shortens the pause before a service is started again: the real ten
// seconds would show nothing more.
func RestartAfter(t *testing.T, pause time.Duration) {
	t.Helper()
	dir := filepath.Join(os.Getenv("HOME"), ".config/systemd/user/sema-device-.service.d")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[Service]\nRestartSec=%dms\n", pause.Milliseconds())
	if err := os.WriteFile(filepath.Join(dir, "test.conf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Socket makes a socket like the one a service tells its news to, and sets
// NOTIFY_SOCKET. Each call of hear returns the next message.
func Socket(t *testing.T) (hear func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short: a socket's name has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		buffer := make([]byte, 4096)
		if err := socket.SetReadDeadline(time.Now().Add(hearing)); err != nil {
			t.Fatal(err)
		}
		n, err := socket.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
}
