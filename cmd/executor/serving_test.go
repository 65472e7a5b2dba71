package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/internal/doctor"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// serving starts `serve` as a process of its own and waits until its server may
// use the device. The function it returns interrupts it and wants a good end.
func (m *machine) serving(id string, flags ...string) (stop func()) {
	m.t.Helper()
	cmd := m.command(append([]string{"device", "serve", "--device", id}, flags...)...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	if err := m.server.WaitActive(ctx, id); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		m.t.Fatalf("%v\n%s", err, log.String())
	}
	return func() {
		m.t.Helper()
		interrupt(m.t, cmd)
		if strings.Contains(log.String(), theCredential) {
			m.t.Errorf("the log shows the credential:\n%s", log.String())
		}
	}
}

// dispatch has the served device do one instruction.
func (m *machine) dispatch(id string, what refserver.Dispatch) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	call, err := m.server.Dispatch(ctx, id, what)
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := call.Wait(ctx); err != nil {
		m.t.Fatal(err)
	}
}

func TestLookingAtAServedDeviceDoesNotDisturbIt(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	stop := m.serving(id)
	m.dispatch(id, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: "echo marked-7f3a; sleep 60 & exit 3"}})

	before := m.server.State(id)
	report := m.examine(0)
	served := false
	for _, f := range report.Devices[0].Findings {
		served = served || f.Check == "lock" && f.Level == doctor.OK && strings.Contains(f.What, "serves this device now: active")
	}
	if !served {
		t.Errorf("%+v", report.Devices[0])
	}
	for _, command := range []string{"list", "status", "activity"} {
		s := m.run("device", command)
		if s.code != 0 {
			t.Errorf("%s: %+v", command, s)
		}
		fits(t, command, s.stdout)
	}
	after := m.server.State(id)
	if !after.Active || after.Gen != before.Gen || after.Connections != before.Connections {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	stop()
	if v := m.server.Violations(); len(v) > 0 {
		t.Errorf("%v", v)
	}

	s := m.run("device", "activity")
	for _, want := range []string{"exec", "exit 3, 12 B out, 1 leftover", "ended"} {
		if !strings.Contains(s.stdout, want) {
			t.Errorf("activity without %q:\n%s", want, s.stdout)
		}
	}
}

func TestOnlyTheOwnerHasCommandsWrittenDown(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	file := filepath.Join(t.TempDir(), "file-named-7f3a")
	if err := os.WriteFile(file, []byte("content-7f3a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--log-commands"}} {
		stop := m.serving(id, flags...)
		m.dispatch(id, refserver.Dispatch{
			Kind: wire.KindExec, Args: wire.ExecArgs{Command: "echo output-$((7+1)); : command-7f3a"}, ShellEnv: map[string]string{"MARKED": "variable-7f3a"},
		})
		m.dispatch(id, refserver.Dispatch{Kind: wire.KindReadTextFile, Args: wire.PathArgs{Path: file}})
		stop()
		var text []byte
		for _, name := range []string{"activity.jsonl", "status.json"} {
			b, err := os.ReadFile(filepath.Join(m.record(id).Dir(), name))
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, b...)
		}
		for _, never := range []string{"content-7f3a", "variable-7f3a", "output-8"} {
			if bytes.Contains(text, []byte(never)) {
				t.Errorf("%v: %s is written down", flags, never)
			}
		}
		for _, asked := range []string{"command-7f3a", "file-named-7f3a"} {
			if got := bytes.Contains(text, []byte(asked)); got != (flags != nil) {
				t.Errorf("%v: %s is written down: %v", flags, asked, got)
			}
		}
	}
	var commands []string
	for line := range strings.Lines(m.run("device", "activity", "--json").stdout) {
		var e activity.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, e.Command)
	}
	if len(commands) != 4 || commands[0] != "" || !strings.Contains(commands[2], "command-7f3a") {
		t.Errorf("%q", commands)
	}
}
