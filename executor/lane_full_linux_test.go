package executor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// TestAFullDiskIsFreedByACommand: an agent whose machine's disk is full can run
// what frees it, also after a crash, and what a crash leaves is ended.
func TestAFullDiskIsFreedByACommand(t *testing.T) {
	t.Parallel()
	dir, workspace := workspaceOf(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		t.Skipf("needs root to mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h := newHost(t, refserver.Config{MaxInflight: 32, Takeover: refserver.TakeoverAny}, workspace)
	x := child(t, h, dir, workspace)
	activate(t, h.Server, h.device)

	filler := filepath.Join(dir, "filler")
	fill := func() {
		t.Helper()
		if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	fill()
	v, err := torture{name: "hidden", text: "(env -i setsid /bin/sh -c '/bin/sleep TOKEN & exit' &); sleep TOKEN", many: 2}.inflict(h, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if !v.comesUp(t, time.Now().Add(promptly)) {
		v.settled(t, wire.ExecOutcome{}) // says why
	}
	entries, err := filepath.Glob(filepath.Join(dir, executor.LedgerDir, "process-*.json"))
	if err != nil || len(entries) != 1 {
		t.Errorf("a command runs that is not in the ledger: %v, %v", entries, err)
	}
	h.reactivated(t, func() {
		if err := x.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = x.Wait()
		child(t, h, dir, workspace)
	})
	v.gone(t, "next start")

	// Commands above what was reserved for are refused, and told what to do.
	var running []*started
	for {
		s, err := h.start(shell("echo up; sleep 300"))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, promptly, "the command runs or is refused", func() bool {
			select {
			case <-s.Done():
				return true
			default:
				return s.said(wire.ChunkStdout) != ""
			}
		})
		if s.said(wire.ChunkStdout) == "" {
			a, err := s.answer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a.wants(t, "one too many", wire.CodeSpawnError)
			if f, ok := a.Outcome.(wire.Failure); ok && (!strings.Contains(f.Message, dir) || !strings.Contains(f.Message, "remove instruction")) {
				t.Errorf("refused with %q", f.Message)
			}
			break
		}
		running = append(running, s)
	}
	if len(running) < 8 {
		t.Errorf("only %d commands were started", len(running))
	}
	for _, s := range running {
		s.Cancel()
		if _, err := s.answer(t.Context()); err != nil {
			t.Error(err)
		}
	}
	h.must(t, shell("rm '"+filler+"' && echo freed")).wants(t, "freeing room", wire.ExecOutcome{})
	if _, err := os.Stat(filler); err == nil {
		t.Error("the file is still there")
	}
	h.blameless(t)
}
