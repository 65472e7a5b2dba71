package files_test

import (
	"os"
	"os/exec"
	"testing"
)

// parts are what this binary does instead of running tests, when a test starts it
// again as another process.
var parts = map[string]func(){}

const partVariable = "FILES_TEST_PART"

// noLinger is for parts that end by the hundred: the race detector sleeps a second at
// each end.
const noLinger = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if part, ok := parts[os.Getenv(partVariable)]; ok {
		part()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// another makes a command that runs a part of this binary in another process.
func another(part string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), partVariable+"="+part)
	cmd.Stderr = os.Stderr
	return cmd
}
