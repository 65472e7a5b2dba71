package service

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A service started by these tests runs this test binary in the place of the
// real program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "device" && os.Args[2] == "serve" {
		os.Exit(standIn(os.Getenv("SEMA_HOME")))
	}
	os.Exit(m.Run())
}

// launch is what a stand-in writes down of its start.
type launch struct {
	PID  int
	Args []string
	Env  []string
}

// standIn behaves like an executor towards its service manager. What it does
// beyond that is told by files in its home.
func standIn(home string) int {
	file := func(name string) string { return filepath.Join(home, name) }
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)

	notifier := TakeNotifier()
	if code, ok := takeNumber(file("end-at-start")); ok {
		fmt.Println("stand-in: ends before it is up")
		return code
	}
	text, err := json.Marshal(launch{PID: os.Getpid(), Args: os.Args, Env: os.Environ()})
	if err == nil {
		err = os.WriteFile(file("launch.json"), text, 0o600)
	}
	var command *exec.Cmd
	if script, readErr := os.ReadFile(file("command")); readErr == nil && err == nil {
		command = exec.Command("/bin/sh", "-c", string(script))
		command.Dir = home
		err = command.Start()
	}
	if err == nil {
		err = notifier.Status("stands in\nfor an executor")
	}
	if err == nil {
		err = notifier.Ready()
	}
	if err != nil {
		fmt.Println(err)
		return 70
	}
	fmt.Println("stand-in: up")
	if <-signals == syscall.SIGUSR1 {
		code, _ := takeNumber(file("end"))
		return code
	}
	_ = notifier.Stopping()
	if command != nil {
		_ = command.Wait() // the drain
	}
	fmt.Println("stand-in: drained")
	return 0
}

func takeNumber(path string) (int, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	_ = os.Remove(path)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil
}

// lack skips a test for want of something, or fails it where everything is
// expected to be there.
func lack(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

// treeOf lists everything in a folder.
func treeOf(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
