package executor_test

import (
	"context"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// keeper is the pid of the helper above the helper above a command's shell.
const keeper = "$(while read -r name value; do case $name in PPid:) echo $value;; esac; done </proc/$PPID/status)"

// TestACommandThatKillsItsHelpersTakesNothingAlong: the executor itself ends what
// lost both, says that it does not know how the shell ended, and goes on.
func TestACommandThatKillsItsHelpersTakesNothingAlong(t *testing.T) {
	t.Parallel()
	dir, workspace := workspaceOf(t)
	h := newHost(t, refserver.Config{MaxInflight: 4}, workspace)
	t.Cleanup(func() { h.blameless(t) })
	child(t, h, dir, workspace) // all that falls to an executor's process is ended
	activate(t, h.Server, h.device)
	both := []torture{
		{name: "the keeper first", text: "(env -i setsid /bin/sh -c '/bin/sleep TOKEN & exit' &); sleep .5; kill -9 " + keeper + " $PPID; sleep TOKEN"},
		{name: "the keeper last", text: "(env -i setsid /bin/sh -c '/bin/sleep TOKEN & exit' &); sleep .5; kill -9 $PPID " + keeper + "; sleep TOKEN"},
	}
	for round := range 2 * rounds(t, 1) {
		x := both[round%2]
		v, err := x.inflict(h, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		v.comesUp(t, time.Now().Add(promptly))
		a, err := v.answer(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if o := (wire.ExecOutcome{ExitCode: 137}); a.Outcome != wire.Outcome(o) { // where the keeper saw it
			a.wants(t, x.name, wire.CodeOutcomeUnknown)
		}
		if left := v.look(); len(left) > 0 {
			t.Errorf("%s: answered while %v are alive", x.name, left)
		}
		h.must(t, shell("exit 4")).wants(t, "the next command", wire.ExecOutcome{ExitCode: 4})
	}
}
