package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/sema-agent/device-executor/refserver"
)

var update = flag.Bool("update", false, "write the golden text anew")

// onTerminal runs a command line in a pseudo-terminal of 80 columns and returns
// what a person sees there.
func onTerminal(t *testing.T, env []string, args ...string) (text string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{asMain + "=1", "TERM=xterm"}, env...)
	cmd.Dir = t.TempDir() // the default workspace
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	seen, err := io.ReadAll(terminal)
	if err != nil && !errors.Is(err, syscall.EIO) { // Linux says so once nobody is left on the other side
		t.Fatal(err)
	}
	var failed *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(seen), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// What differs from run to run has the same width in each, so that lines break
// in the same places, and is replaced by itself in zeros.
var (
	portForm   = regexp.MustCompile(`127\.0\.0\.1:[0-9]{5}`)
	deviceForm = regexp.MustCompile(`dev_[0-9A-Z]{26}`)
	folderForm = regexp.MustCompile(`/tmp/sema-[0-9a-f]{8}`)
	dateForm   = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}`)
	// A slow machine tells its user that it is still waiting.
	waitingForm = regexp.MustCompile(`(?m)^.* …\n`)
)

func settled(text string) string {
	text = waitingForm.ReplaceAllString(text, "")
	text = portForm.ReplaceAllString(text, "127.0.0.1:00000")
	text = deviceForm.ReplaceAllString(text, "dev_00000000000000000000000000")
	text = folderForm.ReplaceAllString(text, "/tmp/sema-00000000")
	return dateForm.ReplaceAllString(text, "0000-00-00")
}

// freshMachine is an environment with nothing of whoever runs the tests in it.
func freshMachine(t *testing.T) (root string, env []string) {
	t.Helper()
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	root = "/tmp/sema-" + hex.EncodeToString(random[:])
	for _, dir := range []string{root, root + "/code"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // the test's own, in a folder for such things
	// A login shell without profiles: those of this machine set what they like.
	login := filepath.Join(root, "login")
	if err := os.WriteFile(login, []byte("#!/bin/sh\nexec /bin/sh -c \"$3\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return root, []string{
		"HOME=" + root, "SEMA_HOME=" + root + "/sema", "PATH=/usr/bin:/bin", "SHELL=" + login,
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/none", noServices + "=1",
	}
}

// serverOnFiveDigits listens on a port whose number has five digits.
func serverOnFiveDigits(t *testing.T) (address string) {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if l.Addr().(*net.TCPAddr).Port < 10000 {
			_ = l.Close()
			continue
		}
		server := refserver.New(refserver.Config{})
		site := &http.Server{Handler: server}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = site.Serve(l) // ends by being closed
		}()
		t.Cleanup(func() {
			_ = server.Close()
			_ = site.Close()
			<-done
		})
		return "http://" + l.Addr().String()
	}
}

func TestFirstUse(t *testing.T) {
	root, env := freshMachine(t)
	address := serverOnFiveDigits(t)
	env = append(env, "NO_COLOR=1")
	var transcript strings.Builder
	for _, step := range []struct {
		line string // as typed
		env  string
	}{
		{line: "sema device list"},
		{line: "sema device doctor"},
		{line: "sema device serve"},
		{line: "sema device enroll"},
		{line: "sema device enroll --server " + address},
		{line: "sema device enroll --server http://127.0.0.1:1", env: "SEMA_CREDENTIAL=" + theCredential},
		{line: "sema device enroll --server " + address + " --name laptop --workspace " + root + "/code", env: "SEMA_CREDENTIAL=" + theCredential},
		{line: "sema device list"},
		{line: "sema device status"},
		{line: "sema device doctor"},
		{line: "sema device activity"},
		{line: "sema device try --workspace " + root + "/code -- 'echo out; exit 7'"},
		{line: "rm -r " + root + "/code; chmod go+r " + root + "/sema/devices/*/key"},
		{line: "sema device doctor"},
		{line: "sema device unenroll --yes"},
		{line: "sema device list"},
	} {
		transcript.WriteString("$ " + step.line + "\n")
		words := shellWords(step.line)
		if words[0] != "sema" {
			if out, err := exec.Command("/bin/sh", "-c", step.line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", step.line, err, out)
			}
			continue
		}
		text, code := onTerminal(t, append(env[:len(env):len(env)], step.env), words[1:]...)
		fits(t, step.line, text)
		inPlainWords(t, step.line, text)
		if strings.Contains(text, theCredential) {
			t.Errorf("%s shows the credential:\n%s", step.line, text)
		}
		transcript.WriteString(text)
		if code != 0 {
			fmt.Fprintf(&transcript, "[exit %d]\n", code)
		}
	}
	if runtime.GOOS != "linux" {
		return // the golden text is of Linux
	}
	got := settled(transcript.String())
	const golden = "testdata/firstuse.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("first use is not as in %s (write it anew with -update and look at the difference):\n%s", golden, got)
	}
}

// shellWords takes a line of this test apart: blanks, and single quotes.
func shellWords(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

// inPlainWords refuses what only those who wrote a library understand.
func inPlainWords(t *testing.T, what, text string) {
	t.Helper()
	for _, raw := range []string{"dial tcp", "dial unix", "x509:", "tls:", "syscall", " json: ", "Get \"", "Post \"", "%!", "0x", "panic", "goroutine", "<nil>",
		"context deadline exceeded", "context canceled", "unexpected EOF", "strconv.", "invalid character",
		"JSON input", "parsing time", "open /", "mkdir /", "stat /", "lstat /", "fork/exec", "chdir "} {
		if strings.Contains(text, raw) {
			t.Errorf("%s: in a library's words (%s):\n%s", what, raw, text)
		}
	}
}

func TestColoursAreForTerminalsWhoseUsersWantThem(t *testing.T) {
	_, env := freshMachine(t)
	if text, _ := onTerminal(t, env, "device", "doctor"); !strings.Contains(text, "\x1b[") {
		t.Errorf("a terminal gets no colours:\n%q", text)
	}
	if text, _ := onTerminal(t, append(env, "NO_COLOR=1"), "device", "doctor"); strings.Contains(text, "\x1b[") {
		t.Errorf("NO_COLOR is not heeded:\n%q", text)
	}
	cmd := exec.Command(os.Args[0], "device", "doctor")
	cmd.Env = append([]string{asMain + "=1", "TERM=xterm"}, env...)
	if text, _ := cmd.Output(); strings.Contains(string(text), "\x1b[") || len(text) == 0 {
		t.Errorf("a pipe gets colours:\n%q", text)
	}
}
