package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// mostResident is what `serve` may ever have held, in bytes, whatever it is asked.
const mostResident = 100 << 20

// TestEightFloodsThatNobodyAcknowledgesFitIntoAHundredMebibytes looks at the program
// as it is released, alone in its process: the race detector and a server beside it
// would be most of what is measured.
func TestEightFloodsThatNobodyAcknowledgesFitIntoAHundredMebibytes(t *testing.T) {
	t.Parallel()
	const floods = 8
	m := newMachineFor(t, refserver.Config{Heartbeat: time.Second, MaxInflight: floods})
	m.program = filepath.Join(t.TempDir(), "sema")
	if out, err := exec.Command("go", "build", "-o", m.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	f := m.serve(m.enroll("")).active()
	m.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeChunkAck)})

	var calls []*refserver.Call
	for range floods {
		call, err := m.server.Dispatch(t.Context(), f.device, refserver.Dispatch{
			Kind: wire.KindExec, Args: wire.ExecArgs{Command: "exec cat /dev/zero"}, TimeoutMs: time.Hour.Milliseconds(), AckDelivered: true,
			Deliver: func(wire.ChunkKind, []byte) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	marks := func() []int64 {
		var all []int64
		for _, call := range calls {
			all = append(all, call.Watermark())
		}
		return all
	}
	f.holds("every flood has begun", func() bool { return slices.Min(marks()) >= 0 })
	// What the bounds let through goes; after that only beats do.
	last := marks()
	beat, beats := f.beat(), 0
	f.holds("the floods stand still for three beats", func() bool {
		if now := marks(); !slices.Equal(now, last) {
			last, beats = now, 0
		}
		if now := f.beat(); now > beat {
			beat, beats = now, beats+1
		}
		return beats >= 3
	})
	withheld := highWater(t, f.pid)

	m.server.SetFaults(refserver.Faults{})
	f.holds("every flood goes on", func() bool {
		now := marks()
		for i := range now {
			if now[i] < last[i]+100 {
				return false
			}
		}
		return true
	})
	for _, call := range calls {
		call.Cancel()
	}
	for _, call := range calls {
		if how, err := call.Wait(t.Context()); err != nil || how.Outcome != wire.Outcome(wire.CancelledOutcome{State: wire.CancelKilled}) {
			t.Errorf("a cancel was answered %+v, %v", how.Outcome, err)
		}
	}
	afterwards := highWater(t, f.pid)
	t.Logf("at most %d MiB while nothing was acknowledged, %d MiB afterwards", withheld>>20, afterwards>>20)
	if afterwards > mostResident {
		t.Errorf("%d MiB resident at one time, want at most %d", afterwards>>20, mostResident>>20)
	}
	f.send(os.Interrupt)
	f.ends(0)
	m.blameless()
}

// holds polls until a condition does.
func (f *foreground) holds(what string, condition func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patienceInTests); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("not within %v: %s", patienceInTests, what)
		}
	}
}

// beat is the number of the last heartbeat, or -1.
func (f *foreground) beat() int64 {
	if b := f.server.State(f.device).LastHeartbeat; b != nil {
		return b.Seq
	}
	return -1
}

// highWater is the most that was ever resident of a process, in bytes.
func highWater(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("process %d has no memory", pid)
	return 0
}
