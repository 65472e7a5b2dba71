package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// patienceInTests is how long what comes promptly may take on a machine that is busy.
const patienceInTests = 30 * time.Second

// newMachineFor is newMachine with a server of a particular kind.
func newMachineFor(t *testing.T, c refserver.Config) *machine {
	t.Helper()
	m := newMachine(t)
	server := refserver.New(c)
	site := httptest.NewServer(server)
	t.Cleanup(func() {
		_ = server.Close()
		site.Close()
	})
	m.server, m.url = server, site.URL
	return m
}

// foreground is a `serve` in a process of its own.
type foreground struct {
	*machine
	device string
	pid    int
	signal func(os.Signal) error
	ended  chan struct{}
	code   int          // after ended
	log    bytes.Buffer // after ended
}

// serve starts `serve` and does not wait for anything.
func (m *machine) serve(device string, flags ...string) *foreground {
	m.t.Helper()
	cmd := m.command(append([]string{"device", "serve", "--device", device}, flags...)...)
	f := &foreground{machine: m, device: device, ended: make(chan struct{})}
	cmd.Stderr = &f.log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	f.pid, f.signal = cmd.Process.Pid, cmd.Process.Signal
	go func() {
		defer close(f.ended)
		_ = cmd.Wait()
		f.code = cmd.ProcessState.ExitCode()
	}()
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-f.ended
		for _, secret := range []string{theCredential, theToken} {
			if bytes.Contains(f.log.Bytes(), []byte(secret)) {
				m.t.Errorf("the log of serve shows a secret:\n%s", f.log.String())
			}
		}
	})
	return f
}

// active waits until instructions may be sent.
func (f *foreground) active() *foreground {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patienceInTests)
	defer cancel()
	if err := f.server.WaitActive(ctx, f.device); err != nil {
		f.t.Fatal(err)
	}
	return f
}

// ends waits for the process's end and wants an exit code.
func (f *foreground) ends(code int) {
	f.t.Helper()
	select {
	case <-f.ended:
		if f.code != code {
			f.t.Errorf("exit code %d, want %d\n%s", f.code, code, f.log.String())
		}
	case <-time.After(patienceInTests):
		f.t.Fatalf("still running after %v", patienceInTests)
	}
}

func (f *foreground) send(s os.Signal) {
	f.t.Helper()
	if err := f.signal(s); err != nil {
		f.t.Fatal(err)
	}
}

// blameless fails the test for whatever the server had to object to.
func (m *machine) blameless() {
	m.t.Helper()
	for _, v := range m.server.Violations() {
		m.t.Errorf("the server objects: %v", v)
	}
}

// ordered is an instruction under way.
type ordered struct {
	*refserver.Call
	mu  sync.Mutex
	out bytes.Buffer
}

func (f *foreground) order(what refserver.Dispatch) (*ordered, error) {
	o := &ordered{}
	what.AckDelivered = true
	what.Deliver = func(_ wire.ChunkKind, data []byte) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.out.Write(data)
		return nil
	}
	var err error
	o.Call, err = f.server.Dispatch(context.Background(), f.device, what)
	return o, err
}

func (o *ordered) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.String()
}

// begin orders a command and waits for its first line.
func (f *foreground) begin(command string) *ordered {
	f.t.Helper()
	o, err := f.order(refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: command}, TimeoutMs: time.Hour.Milliseconds()})
	if err != nil {
		f.t.Fatal(err)
	}
	for deadline := time.Now().Add(patienceInTests); !strings.Contains(o.said(), "\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%q has said nothing", command)
		}
	}
	return o
}

func (f *foreground) do(what refserver.Dispatch) (wire.Outcome, string) {
	f.t.Helper()
	o, err := f.order(what)
	if err != nil {
		f.t.Fatal(err)
	}
	how, err := o.Wait(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return how.Outcome, o.said()
}

func (f *foreground) run(command string) (wire.Outcome, string) {
	f.t.Helper()
	return f.do(refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: command}})
}

func TestEnrollServeTwentyCommandsAndLeave(t *testing.T) {
	t.Parallel()
	m := newMachineFor(t, refserver.Config{MaxInflight: 20})
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.command("device", "enroll", "--server", m.url, "--workspace", workspace, "--key-store", "file", "--json")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("enroll: %v\n%s", err, complaint.String())
	}
	var e enrolledDevice
	if err := json.Unmarshal(out, &e); err != nil || e.Server != m.url || e.WorkspaceRoot != workspace || e.KeyStore != "file" || e.PublicKey == "" {
		t.Fatalf("enroll printed %s (%v)", out, err)
	}
	f := m.serve(e.DeviceID).active()

	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			// Not text, and not the same twice.
			command := fmt.Sprintf("for n in $(seq 1 2000); do printf '%%s\\377\\000%d\\n' $n; done; exit %d", i, i)
			want := sha256.New()
			for n := range 2000 {
				fmt.Fprintf(want, "%d\xff\x00%d\n", n+1, i)
			}
			o, err := f.order(refserver.Dispatch{Kind: wire.KindExecStream, Args: wire.ExecArgs{Command: command}})
			if err != nil {
				t.Error(err)
				return
			}
			how, err := o.Wait(t.Context())
			if err != nil || how.Outcome != wire.Outcome(wire.ExecOutcome{ExitCode: int64(i)}) {
				t.Errorf("command %d: %+v, %v", i, how, err)
			}
			if got := sha256.Sum256([]byte(o.said())); !bytes.Equal(got[:], want.Sum(nil)) {
				t.Errorf("command %d: its %d bytes are not what it printed", i, len(o.said()))
			}
		})
	}
	all.Wait()
	f.send(syscall.SIGTERM)
	f.ends(exitOK)
	if said := m.server.State(e.DeviceID).Goodbye; said != wire.GoodbyeShutdown {
		t.Errorf("goodbye %q", said)
	}
	m.blameless()
}

func TestASignalLetsRunningWorkFinish(t *testing.T) {
	t.Parallel()
	for signal, reason := range map[syscall.Signal]wire.GoodbyeReason{syscall.SIGTERM: wire.GoodbyeShutdown, syscall.SIGINT: wire.GoodbyeUserStop} {
		m := newMachine(t)
		f := m.serve(m.enroll("")).active()
		o := f.begin("echo working; sleep 1; echo done")
		f.send(signal)
		how, err := o.Wait(t.Context())
		if err != nil || how.Outcome != wire.Outcome(wire.ExecOutcome{}) || o.said() != "working\ndone\n" {
			t.Errorf("%v: %+v, %v after %q", signal, how, err, o.said())
		}
		f.ends(exitOK)
		if said := m.server.State(f.device).Goodbye; said != reason {
			t.Errorf("%v: goodbye %q, want %q", signal, said, reason)
		}
		m.blameless()
	}
}

// A login shell that takes its time is a moment to be signalled in.
func TestASignalEndsAStartAtOnce(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		m := newMachine(t)
		shell := filepath.Join(t.TempDir(), "shell")
		asked := shell + ".asked"
		if err := os.WriteFile(shell, []byte("#!/bin/sh\n: >"+asked+"\nsleep 60\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		m.env["SHELL"] = shell
		f := m.serve(m.enroll(""), "--env", "login")
		for deadline := time.Now().Add(patienceInTests); ; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(asked); err == nil {
				break
			} else if time.Now().After(deadline) {
				t.Fatal("the login shell was not asked")
			}
		}
		f.send(syscall.SIGHUP)
		f.send(signal)
		f.ends(exitOK)
		if strings.Contains(f.log.String(), "starting") {
			t.Errorf("%v: it went on:\n%s", signal, f.log.String())
		}
	}
}

func TestTheDrainHasAnEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve(m.enroll(""), "--drain-timeout", "300ms").active()
	o := f.begin("echo $$; exec sleep 600")
	f.send(syscall.SIGTERM)
	how, err := o.Wait(t.Context())
	if failed, ok := how.Outcome.(wire.Failure); err != nil || !ok || failed.Code != wire.CodeAborted {
		t.Errorf("%+v, %v", how, err)
	}
	f.ends(exitOK)
	dead(t, o)
	m.blameless()
}

func TestEverySignalThatEndsAtOnceEndsCommandsFirst(t *testing.T) {
	for _, signals := range [][]syscall.Signal{{syscall.SIGTERM, syscall.SIGTERM}, {syscall.SIGINT, syscall.SIGTERM}, {syscall.SIGINT, syscall.SIGINT}, {syscall.SIGQUIT}} {
		t.Run(fmt.Sprint(signals), func(t *testing.T) {
			t.Parallel()
			endsAtOnce(t, signals)
		})
	}
}

func endsAtOnce(t *testing.T, signals []syscall.Signal) {
	m := newMachine(t)
	f := m.serve(m.enroll(""), "--drain-timeout", "10m").active()
	o := f.begin("trap '' TERM INT QUIT HUP; setsid sleep 600 & echo $! $$; sleep 600; sleep 600")
	f.send(signals[0])
	if len(signals) > 1 {
		ctx, cancel := context.WithTimeout(t.Context(), patienceInTests)
		err := m.server.WaitFor(ctx, f.device, func(s refserver.DeviceState) bool { return s.Goodbye != "" })
		cancel()
		if err != nil {
			t.Fatalf("%v: no goodbye: %v", signals, err)
		}
		f.send(signals[1])
	}
	f.ends(exitOK)
	dead(t, o)
	m.blameless()
}

// dead fails the test if a process that a command named is alive.
func dead(t *testing.T, o *ordered) {
	t.Helper()
	for _, word := range strings.Fields(o.said()) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("the command said %q", o.said())
		}
		if alive(pid) {
			t.Errorf("serve is gone and process %d of its command is alive", pid)
		}
	}
}

func TestAClosedTerminalDoesNotEndServe(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	id := m.enroll("")
	cmd := m.command("device", "serve", "--device", id, "--log-level", "debug")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := &foreground{machine: m, device: id}
	f.active()
	// Nobody reads its log any more, and the terminal hangs up.
	for _, end := range []io.Closer{read, write} {
		if err := end.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if o, said := f.run("trap - HUP; echo alive; kill -HUP $$; echo not here"); o != wire.Outcome(wire.ExecOutcome{ExitCode: 128 + int64(syscall.SIGHUP)}) || said != "alive\n" {
			t.Errorf("a command ended with %+v after %q", o, said)
		}
	}
	if n := m.server.State(id).Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	m.blameless()
}

func TestALogForProgramsSaysWhichServer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	f := m.serve(m.enroll(""), "--log-format", "json").active()
	f.send(syscall.SIGTERM)
	f.ends(exitOK)
	var starting struct{ Msg, Device, Server, Workspace string }
	for line := range strings.Lines(f.log.String()) {
		if !strings.Contains(line, `"starting"`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &starting); err != nil {
			t.Errorf("%v in %s", err, line)
		}
	}
	if starting.Server != m.url || starting.Device != f.device {
		t.Errorf("it started with %+v, want server %s of %s\n%s", starting, m.url, f.device, f.log.String())
	}
}

// A workspace that is not there, or no folder, is said at the start, once, with
// what mends it; the device is served all the same, and once the folder is there
// its commands run.
func TestAMissingWorkspaceIsSaidAtTheStartAndServedAllTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(workspace string) error
		code   wire.ErrorCode
		why    string
		run    string
	}{
		"not there":    {os.Remove, wire.CodeNotFound, "it is not there", "mkdir -p "},
		"not a folder": {fileInstead, wire.CodeNotDirectory, "it is not a folder", "ls -ld "},
		"in order":     {func(string) error { return nil }, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			workspace := filepath.Join(t.TempDir(), "it's here")
			if err := os.Mkdir(workspace, 0o700); err != nil {
				t.Fatal(err)
			}
			id := m.enroll(workspace)
			if err := c.breaks(workspace); err != nil {
				t.Fatal(err)
			}
			f := m.serve(id, "--log-format", "json").active()
			if c.code != "" {
				if o, _ := f.run("echo here"); o.(wire.Failure).Code != c.code {
					t.Errorf("a command ends with %+v", o)
				}
				if err := errors.Join(os.RemoveAll(workspace), os.Mkdir(workspace, 0o700)); err != nil {
					t.Fatal(err)
				}
			}
			if o, said := f.run("echo here"); said != "here\n" {
				t.Errorf("with its folder, a command ends with %+v after %q", o, said)
			}
			f.send(syscall.SIGTERM)
			f.ends(exitOK)
			var warnings []string
			for line := range strings.Lines(f.log.String()) {
				var entry struct{ Level, Msg, Workspace, Why, Run string }
				if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level != "WARN" || entry.Workspace == "" {
					continue
				}
				warnings = append(warnings, line)
				if entry.Workspace != workspace || entry.Why != c.why || entry.Run != c.run+remedy.Quote(workspace) {
					t.Errorf("it warns of %+v", entry)
				}
			}
			if want := min(len(c.why), 1); len(warnings) != want {
				t.Errorf("%d warnings, want %d:\n%s", len(warnings), want, f.log.String())
			}
			m.blameless()
		})
	}
}

// fileInstead puts a file in a folder's place.
func fileInstead(folder string) error {
	return errors.Join(os.Remove(folder), os.WriteFile(folder, nil, 0o600))
}

func TestServeEndsWithTheCodeOfItsReason(t *testing.T) {
	keyOf := func(m *machine, id string) string { return filepath.Join(m.record(id).Dir(), "key") }
	for name, c := range map[string]struct {
		server refserver.Config
		before func(m *machine, id string)     // the start
		during func(m *machine, f *foreground) // serving
		code   int
		says   string
		after  func(m *machine, id string)
	}{
		"nothing enrolled": {before: func(m *machine, id string) {
			if err := os.RemoveAll(m.env["SEMA_HOME"]); err != nil {
				m.t.Fatal(err)
			}
		}, code: exitNoDevice, says: "enroll"},
		"served already": {before: func(m *machine, id string) { m.serve(id).active() }, code: exitHeld, says: "already being served on this machine by process ", after: func(m *machine, id string) {
			_, holder, err := fence.Probe(filepath.Join(m.record(id).Dir(), "lock"))
			again := m.run("device", "serve", "--device", id)
			if who := fmt.Sprintf("by process %d.", holder); err != nil || holder == 0 || !strings.Contains(strings.ReplaceAll(again.stderr, "\n", " "), who) {
				m.t.Errorf("it does not say that it is served %s (%v):\n%s", who, err, again.stderr)
			}
		}},
		"revoked": {during: func(m *machine, f *foreground) { m.server.Revoke(f.device) }, code: exitRevoked, says: "its key has been deleted", after: func(m *machine, id string) {
			if _, err := os.Lstat(keyOf(m, id)); !os.IsNotExist(err) {
				m.t.Errorf("the key is still there: %v", err)
			}
			m.serve(id).ends(exitRevoked)
		}},
		"revoked while it was away": {before: func(m *machine, id string) { m.server.Revoke(id) }, code: exitRevoked, says: "its key has been deleted", after: func(m *machine, id string) {
			if _, err := os.Lstat(keyOf(m, id)); !os.IsNotExist(err) {
				m.t.Errorf("the key is still there: %v", err)
			}
		}},
		"superseded": {during: func(m *machine, f *foreground) { m.server.Supersede(f.device) }, code: exitSuperseded, says: "took over", after: func(m *machine, id string) {
			if _, err := os.Lstat(keyOf(m, id)); err != nil {
				m.t.Errorf("the key: %v", err)
			}
		}},
		"too old": {server: refserver.Config{ProtocolVersion: 2, MinProtocolVersion: 2}, code: exitTooOld, says: "newer version"},
		"no key": {before: func(m *machine, id string) {
			if err := os.Remove(keyOf(m, id)); err != nil {
				m.t.Fatal(err)
			}
		}, code: exitKeyUnusable, says: "key"},
		"a key that others can read": {before: func(m *machine, id string) {
			if err := os.Chmod(keyOf(m, id), 0o640); err != nil {
				m.t.Fatal(err)
			}
		}, code: exitKeyUnusable, says: "key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachineFor(t, c.server)
			id := m.enroll("")
			if c.before != nil {
				c.before(m, id)
			}
			f := m.serve(id)
			var o *ordered
			if c.during != nil {
				o = f.active().begin("echo $$; exec sleep 600")
				c.during(m, f)
			}
			f.ends(c.code)
			if o != nil {
				dead(t, o)
			}
			if _, last, _ := strings.Cut(f.log.String(), "sema: "); !strings.Contains(strings.ReplaceAll(last, "\n", " "), c.says) {
				t.Errorf("it does not say why (%s):\n%s", c.says, f.log.String())
			}
			if c.after != nil {
				c.after(m, id)
			}
		})
	}
}

func TestEnrollEndsWithEightWhereTheServerRefuses(t *testing.T) {
	for name, c := range map[string]refserver.Config{
		"no lane":     {Disabled: true},
		"no identity": {Identify: func(*http.Request) (string, bool) { return "", false }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachineFor(t, c)
			cmd := m.command("device", "enroll", "--server", m.url, "--workspace", t.TempDir(), "--key-store", "file")
			var complaint bytes.Buffer
			cmd.Stderr = &complaint
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != exitRefused {
				t.Errorf("exit code %d\n%s", code, complaint.String())
			}
			if len(m.devices()) != 0 {
				t.Error("a device was left behind")
			}
		})
	}
}

func TestNoSecretIsWithinACommandsReach(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	m := newMachine(t)
	id := m.enroll("")
	// Secrets of this test alone: others start processes with the usual ones.
	credential, token := theCredential+"-within-reach", theToken+"-within-reach"
	m.env["SEMA_CREDENTIAL"], m.env["SEMA_ENROLL_TOKEN"] = credential, token
	f := m.serve(id).active()
	o, said := f.run("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
	if _, ok := o.(wire.ExecOutcome); !ok || !strings.Contains(said, "SEMA_INSTRUCTION_ID=") {
		t.Fatalf("%+v after %q", o, said)
	}
	for _, secret := range []string{credential, token} {
		if strings.Contains(said, secret) {
			t.Errorf("a command finds %s", secret)
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", f.pid))
	if err != nil || !bytes.Contains(environ, []byte("SEMA_HOME=")) {
		t.Fatalf("the environment of serve: %q, %v", environ, err)
	}
	if bytes.Contains(environ, []byte(credential)) || bytes.Contains(environ, []byte(token)) {
		t.Errorf("serve carries a secret: %q", environ)
	}
	err = filepath.WalkDir(m.env["SEMA_HOME"], func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(credential)) || bytes.Contains(b, []byte(token)) {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAllowedRootsConfineFilesAndNotCommands(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	for _, dir := range []string{"in", "in/deep", "also", "out", "tmp"} {
		if err := os.Mkdir(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"in/deep/f": "inside", "out/f": "outside"} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"in/stays": at("in/deep"), "in/leaves": at("out"), "in/f-out": at("out/f"), "roundabout": at("in")} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(t)
	id := m.enroll(at("in"))
	m.env["TMPDIR"] = at("tmp")
	f := m.serve(id, "--allow-root", at("roundabout"), "--allow-root", at("also")).active()

	const refused = "refused"
	ask := func(kind wire.Kind, args wire.Args, content, want string) {
		t.Helper()
		o, said := f.do(refserver.Dispatch{Kind: kind, Args: args, Content: []byte(content)})
		failed, isFailure := o.(wire.Failure)
		switch {
		case want == refused:
			if !isFailure || failed.Code != wire.CodePermissionDenied {
				t.Errorf("%s %+v: %+v, want permission_denied", kind, args, o)
			}
		case isFailure:
			t.Errorf("%s %+v: %+v", kind, args, o)
		case said != want:
			t.Errorf("%s %+v: read %q, want %q", kind, args, said, want)
		}
	}
	for path, want := range map[string]string{"in/deep/f": "inside", "in/stays/f": "inside", "roundabout/deep/f": "inside",
		"out/f": refused, "in/f-out": refused, "in/leaves/f": refused} {
		ask(wire.KindReadTextFile, wire.PathArgs{Path: at(path)}, "", want)
	}
	for path, want := range map[string]string{"in/new": "", "also/new": "", "tmp/new": "", "in/stays/new": "", "in/more/folders/new": "",
		"out/new": refused, "out/f": refused, "in/f-out": refused, "in/leaves/new": refused, "in/leaves/more/new": refused} {
		for _, kind := range []wire.Kind{wire.KindWriteFile, wire.KindAppendFile} {
			ask(kind, wire.WriteArgs{Path: at(path)}, "x", want)
		}
	}
	for _, path := range []string{"out", "out/f", "in/leaves/f"} {
		ask(wire.KindFileInfo, wire.PathArgs{Path: at(path)}, "", refused)
		ask(wire.KindRemove, wire.DirArgs{Path: at(path)}, "", refused)
	}
	ask(wire.KindListDir, wire.PathArgs{Path: at("out")}, "", refused)
	ask(wire.KindListDir, wire.PathArgs{Path: at("in/leaves")}, "", refused)
	ask(wire.KindCreateDir, wire.DirArgs{Path: at("out/d")}, "", refused)
	ask(wire.KindCreateTempFile, wire.TempArgs{}, "", "")
	if entries, err := os.ReadDir(at("out")); err != nil || len(entries) != 1 {
		t.Errorf("outside there is now %v, %v", entries, err)
	}
	if b, err := os.ReadFile(at("out/f")); err != nil || string(b) != "outside" {
		t.Errorf("outside it says %q, %v", b, err)
	}
	if o, said := f.run("cat " + at("out/f")); o != wire.Outcome(wire.ExecOutcome{}) || said != "outside" {
		t.Errorf("a command: %+v, %q", o, said)
	}
	f.send(syscall.SIGTERM)
	f.ends(exitOK)
	m.blameless()
}

func TestAKeyThatCouldNotBeDeletedIsNotCalledDeleted(t *testing.T) {
	t.Parallel()
	m := newMachineFor(t, refserver.Config{})
	f := m.serve(m.enroll("")).active()
	key := filepath.Join(m.record(f.device).Dir(), "key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(key, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.server.Revoke(f.device)
	f.ends(exitRevoked)
	if said := f.log.String(); strings.Contains(said, "has been deleted") || !strings.Contains(said, "could not be deleted") || !strings.Contains(said, "  sema device unenroll") {
		t.Errorf("serve says\n%s", said)
	}
	if err := os.RemoveAll(key); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "serve", "--device", f.device); s.code != exitRevoked || strings.Contains(s.stderr, "still there") {
		t.Errorf("afterwards: exit %d\n%s", s.code, s.stderr)
	}
}
