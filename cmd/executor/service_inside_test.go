package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/userunit"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/service"
	"github.com/sema-agent/device-executor/wire"
)

// TestServedByARealUserManager runs the program as its users do, below a real
// `systemd --user`: what it does there is in TestInsideALifeAsAService.
func TestServedByARealUserManager(t *testing.T) {
	dir := userunit.Folder(t)
	program, tests := filepath.Join(dir, "sema"), filepath.Join(dir, "test")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	userunit.CopyTests(t, tests)
	userunit.Below(t, "../../scripts/with-systemd-user", program, tests)
}

// served is one user's machine with the program on it, and a server.
type served struct {
	t       *testing.T
	program string
	server  *refserver.Server
	url     string
	device  string
}

func newServed(t *testing.T) *served {
	t.Helper()
	m := &served{t: t, program: userunit.Program(t)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.server, m.url = refserver.New(refserver.Config{}), "http://"+l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = m.server.Serve(l) })
	t.Cleanup(func() {
		if err := m.server.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	userunit.RestartAfter(t, 200*time.Millisecond)
	return m
}

// sema runs a command line and returns its output, wanting an exit code.
func (m *served) sema(code int, args ...string) (stdout, stderr string) {
	m.t.Helper()
	cmd := exec.Command(m.program, append([]string{"device"}, args...)...)
	cmd.Env = append(os.Environ(), "SEMA_CREDENTIAL=a-credential")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		m.t.Fatalf("sema device %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.String(), complaint.String())
	}
	return out.String(), complaint.String()
}

func (m *served) state() service.State {
	m.t.Helper()
	out, _ := m.sema(exitOK, "service", "status", "--json")
	var s service.State
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *served) await(what string, holds func() bool) {
	m.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			log, _ := m.sema(exitOK, "service", "logs")
			m.t.Fatalf("not %s within 20 s: %+v\n%s", what, m.state(), log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// run has the server run a command on the device.
func (m *served) run(command string) (*refserver.Call, *output) {
	m.t.Helper()
	out := &output{}
	call, err := m.server.Dispatch(m.t.Context(), m.device, refserver.Dispatch{
		Kind: wire.KindExec, Args: wire.ExecArgs{Command: command},
		Deliver: func(_ wire.ChunkKind, data []byte) error { out.add(data); return nil },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return call, out
}

func (m *served) done(call *refserver.Call) wire.Outcome {
	m.t.Helper()
	how, err := call.Wait(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return how.Outcome
}

// output is what a command printed so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) add(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (m *served) active() {
	m.t.Helper()
	m.await("active", func() bool { return m.server.State(m.device).Active })
}

func TestInsideALifeAsAService(t *testing.T) {
	m := newServed(t)
	profile := filepath.Join(os.Getenv("HOME"), ".profile")
	if err := os.WriteFile(profile, []byte("export PATH=\"$PATH:/from/the/profile\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	workspace := t.TempDir()
	out, _ := m.sema(exitOK, "enroll", "--server", m.url, "--workspace", workspace, "--key-store", "file", "--json")
	var enrolled enrolledDevice
	if err := json.Unmarshal([]byte(out), &enrolled); err != nil {
		t.Fatal(err)
	}
	m.device = enrolled.DeviceID

	out, notes := m.sema(exitOK, "service", "install", "--drain-timeout", "8s")
	if !strings.Contains(out, "It is running now") || !strings.Contains(notes, "sudo loginctl enable-linger unit") {
		t.Errorf("install said %q and noted %q", out, notes)
	}
	m.active()
	if out, _ := m.sema(exitOK, "service", "install", "--drain-timeout", "8s"); !strings.Contains(out, "was installed already") {
		t.Errorf("installing again said %q", out)
	}
	m.await("seen active by systemd", func() bool { return strings.HasPrefix(m.state().Text, "active") })

	// Commands have the login shell's PATH, and nothing of the service manager's.
	call, text := m.run(`echo "$PATH"; env | grep -c '^NOTIFY_SOCKET=\|^SEMA_CREDENTIAL='; umask; [ "$(ulimit -Sn)" -gt 1024 ] && echo many files`)
	if got := m.done(call); fmt.Sprint(got) != fmt.Sprint(wire.ExecOutcome{}) {
		t.Errorf("outcome %+v", got)
	}
	lines := strings.Split(text.String(), "\n")
	if len(lines) < 4 || !strings.HasSuffix(lines[0], ":/from/the/profile") || lines[1] != "0" || lines[2] != "0022" || lines[3] != "many files" {
		t.Errorf("commands meet %q", lines)
	}

	// A killed executor is started again, and its commands died with it.
	killed := m.state()
	call, text = m.run("echo $$; exec sleep 300")
	m.await("running its command", func() bool { return strings.Contains(text.String(), "\n") })
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.await("started again", func() bool { s := m.state(); return s.Restarts == 1 && s.Running })
	m.active()
	if f, ok := m.done(call).(wire.Failure); !ok || f.Code != wire.CodeOutcomeUnknown {
		t.Errorf("the command of the killed executor: %+v", m.done(call))
	}
	command, err := strconv.Atoi(strings.TrimSpace(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	m.await("rid of the old command", func() bool { return !alive(command) })

	// A stop lets a running command finish.
	call, text = m.run("echo begun; sleep 2; echo finished")
	m.await("running its command", func() bool { return strings.Contains(text.String(), "begun") })
	m.sema(exitOK, "service", "stop")
	if got := m.done(call); fmt.Sprint(got) != fmt.Sprint(wire.ExecOutcome{}) || !strings.Contains(text.String(), "finished") {
		t.Errorf("the command during the stop: %+v, %q", got, text)
	}
	if s := m.state(); s.Running || s.LastExit == nil || *s.LastExit != (service.Exit{}) || !s.Enabled {
		t.Errorf("after the stop: %+v", s)
	}

	// What cannot read its key is tried again, and says so, until it can.
	key := filepath.Join(os.Getenv("HOME"), ".config/sema/devices", m.device, "key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, complaint := m.sema(exitUnexpected, "service", "start"); !strings.Contains(complaint, "the private key cannot be read") {
		t.Errorf("start without a key said %q", complaint)
	}
	m.await("known to be started again", func() bool {
		out, _ := m.sema(exitOK, "status")
		return strings.Contains(out, "its service starts it again by itself") && strings.Contains(out, "exit code 9") &&
			strings.Contains(out, "sema device service logs") && !strings.Contains(out, "sema device serve\n")
	})
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	m.active()
	m.sema(exitOK, "service", "stop")

	// Nothing but the service may hold the device.
	outside := exec.Command(m.program, "device", "serve")
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	m.active()
	if _, complaint := m.sema(exitHeld, "service", "start"); !strings.Contains(complaint, strconv.Itoa(outside.Process.Pid)) {
		t.Errorf("start beside another executor said %q", complaint)
	}
	if err := outside.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := outside.Wait(); err != nil {
		t.Errorf("the other executor: %v", err)
	}

	m.sema(exitOK, "service", "start")
	m.active()
	var log string
	for _, want := range []string{"starting", "instruction ended", "stopped"} {
		m.await("logged: "+want, func() bool { // the journal takes it in after it was written
			log, _ = m.sema(exitOK, "service", "logs", "--lines", "1000")
			return strings.Contains(log, want)
		})
	}
	for _, never := range []string{"a-credential", "begun", "sleep 300"} {
		if strings.Contains(log, never) {
			t.Errorf("the log has %q:\n%s", never, log)
		}
	}

	// A revoked device is not started again.
	before := m.state()
	m.server.Revoke(m.device)
	m.await("at rest", func() bool { return m.state().Phase == "failed" })
	if s := m.state(); s.LastExit == nil || s.LastExit.Code != exitRevoked || s.Restarts != before.Restarts {
		t.Errorf("after the revocation: %+v", s)
	}
	if _, complaint := m.sema(exitRevoked, "service", "start", "--device", m.device); !strings.Contains(complaint, "Enroll again") {
		t.Errorf("start of a revoked device said %q", complaint)
	}

	m.sema(exitOK, "service", "uninstall")
	units, err := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".config/systemd/user", "*", "*"+m.device+"*"))
	if more, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".config/systemd/user", "*"+m.device+"*")); err != nil || len(slices.Concat(units, more)) > 0 {
		t.Errorf("left behind: %q %q", units, more)
	}
	if out, _ := m.sema(exitOK, "service", "status"); !strings.Contains(out, "not installed") {
		t.Errorf("status said %q", out)
	}
	for _, v := range m.server.Violations() {
		t.Errorf("the server saw %+v", v)
	}
}

// alive reports whether a process runs; one that nobody has reaped is dead.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
