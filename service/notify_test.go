package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/internal/userunit"
)

func TestSystemdHearsOfTheExecutor(t *testing.T) {
	hear := userunit.Socket(t)
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
	for _, want := range []string{"READY=1", "STATUS=active, 2 instructions", "STATUS=two lines", "STOPPING=1"} {
		if got := hear(); got != want {
			t.Errorf("heard %q, want %q", got, want)
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
