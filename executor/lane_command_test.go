package executor_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

func TestACommandEndsWithItsShellAndKeepsItsLastWords(t *testing.T) {
	w := newWay(t, refserver.Config{})

	began := time.Now()
	a := w.must(t, shell("sleep 300 & echo hi $!"))
	a.wants(t, "with a sleeper left behind", wire.ExecOutcome{})
	word, pid, _ := strings.Cut(strings.TrimSpace(a.stdout), " ")
	if took := time.Since(began); word != "hi" || took > promptly {
		t.Errorf("%q after %v", a.stdout, took)
	}
	if alive(t, pid) {
		t.Errorf("the sleeper %s outlived its instruction", pid)
	}

	a = w.must(t, shell("(sleep .5; echo tail) & echo head"))
	a.wants(t, "with a last word", wire.ExecOutcome{})
	if a.stdout != "head\ntail\n" {
		t.Errorf("it said %q", a.stdout)
	}

	if runtime.GOOS != "linux" {
		return // a session of its own may hide there
	}
	// Whoever closed its output, too, is gone by the time of the answer.
	a = w.must(t, shell("setsid sh -c 'exec sleep 300 <&- >&- 2>&-' & echo $!"))
	a.wants(t, "with a silent daemon", wire.ExecOutcome{})
	if pid := strings.TrimSpace(a.stdout); alive(t, pid) {
		t.Errorf("the daemon %s outlived its instruction", pid)
	}
}

func TestACancelledCommandMaySayGoodbye(t *testing.T) {
	w := newWay(t, refserver.Config{})
	s, err := w.start(shell("trap 'echo bye; exit 7' TERM; echo ready; sleep 99 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, promptly, "the trap is set", func() bool { return s.said(wire.ChunkStdout) == "ready\n" })
	s.Cancel()
	a, err := s.answer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.stdout != "ready\nbye\n" {
		t.Errorf("it said %q", a.stdout)
	}
	if a.By != refserver.ByResult {
		t.Errorf("settled by %s", a.By)
	}
}

func TestACommandCutOffSendsNoExitChunk(t *testing.T) {
	w := newWay(t, refserver.Config{})
	what := shell("echo begun; sleep 99")
	what.TimeoutMs = 1500
	a := w.must(t, what)
	a.wants(t, "timeout", wire.CodeTimeout)
	if a.Stream.Exits != 0 || a.stdout != "begun\n" {
		t.Errorf("%d exit chunks after %q", a.Stream.Exits, a.stdout)
	}
}

func TestCommandsSeeWhatTheInstructionSays(t *testing.T) {
	w := newWay(t, refserver.Config{})
	folder := w.workspace + "/é \"quoted\"\n'folder'"
	w.must(t, refserver.Dispatch{Kind: wire.KindCreateDir, Args: wire.DirArgs{Path: folder}}).wants(t, "createDir", wire.VoidOutcome{})
	what := shell(`pwd; printf '%s|' "$A" "$B"; echo "$SEMA_INSTRUCTION_ID"; cat`)
	what.Cwd, what.ShellEnv = folder, map[string]string{"A": "one\ntwo", "B": "$(false) 'é'"}
	s, err := w.start(what)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.answer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.wants(t, "outcome", wire.ExecOutcome{})
	if want := folder + "\none\ntwo|$(false) 'é'|" + s.ID() + "\n"; a.stdout != want {
		t.Errorf("it printed %q, want %q", a.stdout, want)
	}
	what.Cwd = w.workspace + "/missing"
	w.must(t, what).wants(t, "a folder that is not there", wire.CodeNotFound)
}
