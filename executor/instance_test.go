package executor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestASecondExecutorOfADeviceIsRefusedThoughItFindsAFreeLock(t *testing.T) {
	dir, workspace := workspaceOf(t)
	h := newHost(t, refserver.Config{Heartbeat: time.Second}, workspace)
	before := filepath.Join(filepath.Dir(dir), "copied before")
	if err := os.CopyFS(before, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	first := child(t, h, dir, workspace)
	activate(t, h.Server, h.device)
	release := filepath.Join(workspace, "release")
	call, err := h.Dispatch(t.Context(), h.device, shell("while [ ! -e "+release+" ]; do sleep 0.05; done; echo done"))
	if err != nil {
		t.Fatal(err)
	}
	ledger := func() []string {
		entries, err := filepath.Glob(filepath.Join(dir, executor.LedgerDir, "process-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	eventually(t, 10*time.Second, "the ledger names the command", func() bool { return len(ledger()) > 0 })
	entered := len(ledger())
	after := filepath.Join(filepath.Dir(dir), "copied after")
	if err := os.CopyFS(after, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, executor.LockFile)); err != nil {
		t.Fatal(err)
	}

	for _, home := range []string{dir, before, after} {
		c, err := realConfig(h.url, h.device, home, workspace)
		if err != nil {
			t.Fatal(err)
		}
		var held *fence.HeldError
		if err := executor.Run(t.Context(), c); !errors.As(err, &held) || held.PID != first.Process.Pid {
			t.Errorf("a second executor in %s: %v", filepath.Base(home), err)
		}
		if home == before {
			continue // nobody was told there
		}
		if is, pid, err := fence.Probe(filepath.Join(home, executor.LockFile)); !is || pid != first.Process.Pid || err != nil {
			t.Errorf("in %s the device is held: %t, by process %d, %v", filepath.Base(home), is, pid, err)
		}
	}
	if n := len(ledger()); n != entered {
		t.Errorf("%d entries of what runs, of %d", n, entered)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if how := settle(t, call); how.Outcome != wire.Outcome(wire.ExecOutcome{}) {
		t.Errorf("settled %+v", how)
	}
}
