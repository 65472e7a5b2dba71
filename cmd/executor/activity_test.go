package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/internal/status"
	"github.com/sema-agent/device-executor/wire"
)

// keepsRecord writes the activity of a device as its executor would.
func (m *machine) keepsRecord(id string, texts bool, write func(*activity.Recorder)) {
	m.t.Helper()
	r := activity.New(activity.Config{Dir: m.record(id).Dir(), LogCommands: texts, Now: m.now, Log: slog.New(slog.DiscardHandler)})
	write(r)
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		m.t.Fatal(err)
	}
}

func ran(r *activity.Recorder, id string, at time.Time, kind wire.Kind, args wire.Args, o wire.Outcome) {
	w := instructions.Work{ID: id, Kind: kind, RootSessionID: "ses_1", Args: args, Received: at}
	r.Started(w, at)
	r.Ended(w, instructions.Report{Started: at, Ended: at.Add(1500 * time.Millisecond), BytesOut: 2048, Outcome: o, ProcessesEnded: 1})
}

func TestActivityShowsWhatWasDone(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	m.now = func() time.Time { return noon }
	m.keepsRecord(id, true, func(r *activity.Recorder) {
		ran(r, "ins_1", noon.Add(-3*time.Hour), wire.KindExec, wire.ExecArgs{Command: "make\x1b[2J\nall"}, wire.ExecOutcome{ExitCode: 2})
		ran(r, "ins_2", noon.Add(-time.Hour), wire.KindWriteFileExclusive, wire.WriteArgs{Path: "/w/" + strings.Repeat("long/", 40)},
			wire.Failf(wire.CodePreconditionFailed, "x"))
		ran(r, "ins_3", noon.Add(-time.Minute), wire.KindExec, wire.ExecArgs{Command: "true"}, wire.CancelledOutcome{State: wire.CancelKilled})
		r.Started(instructions.Work{ID: "ins_4", Kind: wire.KindExec, Received: noon}, noon)
	})

	s := m.run("device", "activity")
	for _, want := range []string{"exit 2, 2.0 KiB out", "1 leftover ended", "precondition failed", "killed", "cut off", `$ make\x1b[2J\nall`, "1.5s"} {
		if !strings.Contains(s.stdout, want) {
			t.Errorf("without %q:\n%s", want, s.stdout)
		}
	}
	if strings.Contains(s.stdout, "\x1b") {
		t.Errorf("a command's escape sequences reach the terminal: %q", s.stdout)
	}
	fits(t, "activity", s.stdout)

	for flags, want := range map[string][]string{
		"":                                   {"ins_1", "ins_2", "ins_3", "ins_4"},
		"--kind exec":                        {"ins_1", "ins_3", "ins_4"},
		"--kind exec,writeFileExclusive -n2": {"ins_3", "ins_4"},
		"--outcome failed":                   {"ins_2", "ins_3"},
		"--outcome ok --outcome killed":      {"ins_1", "ins_3"},
		"--since 2h":                         {"ins_2", "ins_3", "ins_4"},
		"--since 2026-03-04T11:59:30Z":       {"ins_4"},
		"--limit 1":                          {"ins_4"},
	} {
		s := m.run(append([]string{"device", "activity", "--json"}, strings.Fields(flags)...)...)
		var got []string
		for line := range strings.Lines(s.stdout) {
			var e activity.Entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: %v: %q", flags, err, line)
			}
			got = append(got, e.ID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q shows %v, want %v", flags, got, want)
		}
	}

	// With the executor at work, what has begun is running.
	l, err := fence.Lock(m.record(id).Dir() + "/lock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	if s := m.run("device", "activity", "--limit", "1"); !strings.Contains(s.stdout, "running") {
		t.Errorf("%s", s.stdout)
	}

	// Unless it had begun before that executor did, which has the pid of the one
	// before it wherever processes are numbered from 1.
	snapshot := &status.Snapshot{PID: os.Getpid(), Started: time.Now().Add(time.Hour), State: status.State{Phase: "active"}}
	if err := status.Write(m.record(id).Dir()+"/status.json", snapshot); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "activity", "--limit", "1"); !strings.Contains(s.stdout, "cut off") {
		t.Errorf("%s", s.stdout)
	}
}

func TestAnEmptyRecordIsNoError(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	if s := m.run("device", "activity"); s.code != 0 || s.stdout != "" || !strings.HasPrefix(s.stderr, "Nothing is on record for ") {
		t.Errorf("%+v", s)
	}
}

// following starts a follower of the only device's record, and returns what it
// prints. What it says to people is there once it has ended.
func (m *machine) following() (cmd *exec.Cmd, lines *json.Decoder, notices *bytes.Buffer) {
	m.t.Helper()
	cmd, notices = m.command("device", "activity", "--json", "-f"), &bytes.Buffer{}
	cmd.Stderr = notices
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return cmd, json.NewDecoder(out), notices
}

func TestActivityFollows(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	cmd, lines, _ := m.following()
	for i, id2 := range []string{"ins_a", "ins_b"} {
		m.keepsRecord(id, false, func(r *activity.Recorder) {
			ran(r, id2, time.Now(), wire.KindExists, nil, wire.StatOutcome{})
		})
		var e activity.Entry
		if err := lines.Decode(&e); err != nil || e.ID != id2 {
			t.Fatalf("line %d: %+v, %v", i, e, err)
		}
	}
	interrupt(t, cmd)
}

// The record is so small that the follower meets many rotations. It is never let
// fall behind by as much as is kept.
func TestActivityFollowsOverRotations(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	cmd, lines, notices := m.following()
	r := activity.New(activity.Config{Dir: m.record(id).Dir(), MaxFileBytes: 8 << 10, Now: m.now, Log: slog.New(slog.DiscardHandler)})
	const batches, batch = 8, 100 // of some 150 bytes each
	for i := range batches * batch {
		if i%batch == 0 {
			for k := range batch {
				at := instructions.Work{ID: fmt.Sprintf("ins_%d", i+k), Kind: wire.KindExists, Received: m.now()}
				r.Ended(at, instructions.Report{Ended: m.now(), Outcome: wire.VoidOutcome{}})
			}
		}
		var e activity.Entry
		if err := lines.Decode(&e); err != nil || e.ID != fmt.Sprintf("ins_%d", i) {
			t.Fatalf("line %d: %+v, %v", i, e, err)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if old, err := filepath.Glob(filepath.Join(m.record(id).Dir(), "activity.*.jsonl")); err != nil || len(old) != 3 {
		t.Errorf("put aside: %v, %v", old, err)
	}
	interrupt(t, cmd)
	if notices.Len() > 0 {
		t.Errorf("who keeps up is told %q", notices)
	}
}

// A follower that is stopped while more comes than is kept says so to people, and
// what programs read stays what it is.
func TestAFollowerThatWasOvertakenSaysSo(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	put := func(line string) { // each in a file of its own
		r := activity.New(activity.Config{Dir: m.record(id).Dir(), MaxFileBytes: 1, Now: m.now, Log: slog.New(slog.DiscardHandler)})
		r.Ended(instructions.Work{ID: line, Kind: wire.KindExists, Received: m.now()}, instructions.Report{Ended: m.now(), Outcome: wire.VoidOutcome{}})
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cmd, lines, notices := m.following()
	next := func() string {
		var e activity.Entry
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	put("seen")
	if got := next(); got != "seen" {
		t.Fatalf("the first line is %q", got)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v, %v", status, err)
	}
	for _, line := range []string{"lost", "lost too", "3", "4", "5", "6"} {
		put(line)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := []string{next(), next(), next(), next()}; !slices.Equal(got, []string{"3", "4", "5", "6"}) {
		t.Errorf("after it: %q", got)
	}
	interrupt(t, cmd)
	if strings.Count(notices.String(), "rotated away") != 1 {
		t.Errorf("people are told %q", notices)
	}
	fits(t, "the notice", notices.String())
}

func TestAFollowerIsToldWhenTheDeviceIsUnenrolled(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	m.keepsRecord(id, false, func(r *activity.Recorder) {
		ran(r, "ins_1", time.Now(), wire.KindExists, nil, wire.StatOutcome{})
	})
	cmd, lines, said := m.following()
	var e activity.Entry
	if err := lines.Decode(&e); err != nil { // it is at work, and has read the record of the device
		t.Fatal(err)
	}
	if s := m.run("device", "unenroll", "--yes"); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	late := time.AfterFunc(patienceInTests, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	late.Stop()
	if code := cmd.ProcessState.ExitCode(); code != exitNoDevice || !strings.Contains(said.String(), "is enrolled on this machine") {
		t.Errorf("exit code %d, %s", code, said.String())
	}
}

// interrupt ends a command as Ctrl-C does, and wants it to end well.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

func workOf(id string, at time.Time, kind wire.Kind) instructions.Work {
	return instructions.Work{ID: id, Kind: kind, RootSessionID: "ses_1", Received: at}
}

// The kind of an instruction that this executor does not know is the server's word.
func TestAKindOfAnyLengthKeepsActivityInItsColumns(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	long := wire.Kind(strings.Repeat("kind", 60))
	m.keepsRecord(id, false, func(r *activity.Recorder) {
		for _, kind := range []wire.Kind{long, wire.KindWriteFileExclusive} {
			w := workOf("ins_"+string(kind), m.now(), kind)
			r.Ended(w, instructions.Report{Ended: m.now(), Outcome: wire.Failf(wire.CodeNotSupported, "x")})
		}
	})
	s := m.run("device", "activity")
	fits(t, "activity", s.stdout)
	for line := range strings.Lines(s.stdout) {
		if runes := []rune(line); string(runes[activityOutcome:activityOutcome+13]) != "not supported" {
			t.Errorf("the outcome is not in its column: %q", line)
		}
	}
	if !strings.Contains(s.stdout, " writeFileExclusive ") {
		t.Errorf("the longest kind there is was cut:\n%s", s.stdout)
	}
	if s := m.run("device", "activity", "--json"); !strings.Contains(s.stdout, `"`+string(long)+`"`) {
		t.Errorf("programs do not get all of it: %s", s.stdout)
	}
}

func TestATimeThatNothingCanBeSinceIsAUsageError(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	for _, since := range []string{"-2h", "0", "0s", m.now().Add(time.Hour).Format(time.RFC3339)} {
		if s := m.run("device", "activity", "--since="+since); s.code != exitUsage || !strings.Contains(s.stderr, "--since "+since) {
			t.Errorf("%s: %+v", since, s)
		}
	}
}

// Nobody writes to them, and whoever opens one to read it would wait for that.
func TestAFIFOInTheDevicesFolderHoldsNoCommandUp(t *testing.T) {
	for _, name := range []string{"activity.jsonl", "activity.2.jsonl", "status.json", "device.json", "key", "lock"} {
		m := newMachine(t)
		id := m.enroll("")
		dir := m.record(id).Dir()
		if name == "status.json" {
			lock, err := fence.Lock(filepath.Join(dir, "lock"))
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Unlock()
		}
		_ = os.Remove(filepath.Join(dir, name)) // of most there is none
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
		lines := []string{"list", "status", "doctor", "activity"}
		said := ""
		over := make(chan bool)
		go func() {
			defer close(over)
			for _, line := range lines {
				s := m.run("device", line)
				said += s.stdout + s.stderr
			}
		}()
		select {
		case <-over:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: a command waits for it", name)
		}
		if !strings.Contains(strings.Join(strings.Fields(said), " "), "it is not a regular file") {
			t.Errorf("%s: nobody says what it is:\n%s", name, said)
		}
	}
}
