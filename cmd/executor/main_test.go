package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/service"
)

// asMain in the environment makes the test binary the program itself.
const asMain = "SEMA_TEST_AS_MAIN"

// noServices in the environment gives that program a service manager that has no
// service yet, whatever the machine that runs the tests has.
const noServices = "SEMA_TEST_NO_SERVICES"

func withoutServices() serviceHost {
	return serviceHost{manager: func() (service.Manager, error) { return &keeper{}, nil }}
}

func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	if os.Getenv(asMain) != "" {
		a := system()
		if os.Getenv(noServices) != "" {
			a.services = withoutServices()
		}
		os.Exit(run(os.Args[1:], a))
	}
	// Below nohup a hangup is ignored, which programs that are started inherit: they
	// are to be in the terminal of a person. A signal that is handled is not.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// Secrets that must not turn up anywhere.
const (
	theCredential = "cred-7f3a9b51c4"
	theToken      = "et_5d20e8a6f1b7"
)

// machine is a machine of its own for the commands: folders, environment, and a
// server to enroll with.
type machine struct {
	t      *testing.T
	env    map[string]string
	server *refserver.Server
	url    string
	now    func() time.Time
	stdin  io.Reader

	program  string // what processes of their own run; the test binary if it is empty
	services serviceHost
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	server := refserver.New(refserver.Config{})
	site := httptest.NewServer(server)
	t.Cleanup(func() {
		_ = server.Close()
		site.Close()
	})
	return &machine{
		t: t, server: server, url: site.URL, now: time.Now, stdin: strings.NewReader(""), services: withoutServices(),
		env: map[string]string{
			"SEMA_HOME":                filepath.Join(t.TempDir(), "sema"),
			"SEMA_CREDENTIAL":          theCredential,
			"HOME":                     t.TempDir(),
			"DBUS_SESSION_BUS_ADDRESS": "unix:path=/none", // no keychain of whoever runs the tests
		},
	}
}

// said is how a command line ended.
type said struct {
	code           int
	stdout, stderr string
}

// run executes a command line in this process.
func (m *machine) run(args ...string) said {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{
		stdin: m.stdin, stdout: &stdout, stderr: &stderr,
		getenv: func(name string) string { return m.env[name] },
		now:    m.now, random: rand.Reader, services: m.services,
	}
	code := run(args, a)
	s := said{code, stdout.String(), stderr.String()}
	for _, secret := range []string{theCredential, theToken} {
		if strings.Contains(s.stdout+s.stderr, secret) {
			m.t.Errorf("sema %s shows a secret:\n%s%s", strings.Join(args, " "), s.stdout, s.stderr)
		}
	}
	return s
}

// enroll makes the machine a device, in the folder given or in a new one, and
// returns its id.
func (m *machine) enroll(workspace string) string {
	m.t.Helper()
	if workspace == "" {
		workspace = m.t.TempDir()
	}
	before := map[string]bool{}
	for _, id := range m.devices() {
		before[id] = true
	}
	s := m.run("device", "enroll", "--server", m.url, "--workspace", workspace, "--key-store", "file", "--name", "tested")
	if s.code != 0 {
		m.t.Fatalf("enroll: exit %d\n%s", s.code, s.stderr)
	}
	for _, id := range m.devices() {
		if !before[id] {
			return id
		}
	}
	m.t.Fatalf("enroll left no device\n%s", s.stdout)
	return ""
}

// devices are the ids that are enrolled.
func (m *machine) devices() []string {
	m.t.Helper()
	var ids []string
	for _, r := range m.records() {
		ids = append(ids, r.DeviceID)
	}
	return ids
}

func (m *machine) home() *enroll.Home {
	m.t.Helper()
	home, err := enroll.HomeAt(m.env["SEMA_HOME"])
	if err != nil {
		m.t.Fatal(err)
	}
	return home
}

func (m *machine) records() []*enroll.Record {
	m.t.Helper()
	sound, _, err := m.home().Records()
	if err != nil {
		m.t.Fatal(err)
	}
	return sound
}

func (m *machine) record(id string) *enroll.Record {
	m.t.Helper()
	r, err := m.home().Record(id)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// stores are those of this machine.
func (m *machine) stores() enroll.Stores {
	return enroll.SystemStores(func(name string) string { return m.env[name] })
}

// digest is how a record remembers the token of an enrollment under way.
func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// command prepares a command line for a process of its own.
func (m *machine) command(args ...string) *exec.Cmd {
	m.t.Helper()
	cmd := exec.Command(cmp.Or(m.program, os.Args[0]), args...)
	cmd.Env = []string{asMain + "=1", "PATH=/usr/bin:/bin"}
	for name, value := range m.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	m.t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // it has ended, unless the test failed
		}
	})
	return cmd
}

// fits holds what people read to the width of a terminal.
func fits(t *testing.T, what, text string) {
	t.Helper()
	cut := false // the line before goes on here, as a shell takes it
	for line := range strings.Lines(text) {
		word := cut && len(strings.Fields(line)) == 1 // which would be another one if it were broken
		cut = strings.HasSuffix(line, "\\\n")
		if word {
			continue
		}
		if n := length(strings.TrimRight(line, "\r\n")); n > columns {
			t.Errorf("%s: a line of %d columns: %q", what, n, line)
		}
	}
}
