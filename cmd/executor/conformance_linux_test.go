package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/conformance"
)

func TestASuiteThatIsKilledLeavesNoExecutorBehind(t *testing.T) {
	t.Setenv(asMain, "1")
	for about, line := range map[string]string{
		"in the shell's place":      "exec /bin/sh -c 'echo $$ >TOLD.new && mv TOLD.new TOLD && exec sleep 600'",
		"below a shell that stays":  "/bin/sh -c 'echo $$ >TOLD.new && mv TOLD.new TOLD && exec sleep 600'; true",
		"beside others, in a shell": "sleep 600 & (/bin/sh -c 'echo $$ >TOLD.new && mv TOLD.new TOLD && exec sleep 600'; true); true",
	} {
		t.Run(about, func(t *testing.T) { endsWithTheSuite(t, line) })
	}
}

// endsWithTheSuite kills a suite whose executor has written its number to TOLD.
func endsWithTheSuite(t *testing.T, line string) {
	m := newMachine(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	enroll, _ := conformance.Ours(self)
	told := filepath.Join(t.TempDir(), "pid")
	suite := m.command("device", "conformance", "--only", "exec-output", "--enroll", enroll,
		"--executor", strings.ReplaceAll(line, "TOLD", told))
	suite.Env = append(suite.Env, "TMPDIR="+t.TempDir())
	if err := suite.Start(); err != nil {
		t.Fatal(err)
	}
	var executor int
	for deadline := time.Now().Add(patienceInTests); executor == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the executor was never started")
		}
		b, err := os.ReadFile(told)
		if err == nil {
			executor, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := suite.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = suite.Wait()
	for deadline := time.Now().Add(10 * time.Second); alive(executor); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(executor, syscall.SIGKILL)
			t.Fatal("the executor outlived the suite that was killed")
		}
	}
}
