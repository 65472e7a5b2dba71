package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/userunit"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/service"
)

// keeper is a service manager that only writes down what it is asked.
type keeper struct {
	file   string // of the service; "" for a short one
	state  service.State
	err    error
	silent error // of State
	did    []string
	spec   service.Spec
	force  bool
}

func (k *keeper) Install(_ context.Context, s service.Spec, force bool) (*service.Installed, error) {
	k.did, k.spec, k.force = append(k.did, "install "+s.DeviceID), s, force
	return &service.Installed{File: cmp.Or(k.file, "/units/x.service"), Change: service.Created, Started: true, Notes: []string{"do this"}}, k.err
}

func (k *keeper) Uninstall(_ context.Context, id string, force bool) (*service.Removed, error) {
	k.did, k.force = append(k.did, "uninstall "+id), force
	return &service.Removed{File: cmp.Or(k.file, "/units/x.service")}, k.err
}

func (k *keeper) Start(_ context.Context, id string) error {
	k.did = append(k.did, "start "+id)
	return k.err
}

func (k *keeper) Stop(_ context.Context, id string) error {
	k.did = append(k.did, "stop "+id)
	return k.err
}

func (k *keeper) State(context.Context, string) (service.State, error) { return k.state, k.silent }

func (k *keeper) Logs(_ context.Context, id string, q service.LogQuery, out io.Writer) error {
	k.did = append(k.did, "logs "+id)
	_, err := io.WriteString(out, "a line\n")
	return errors.Join(err, k.err)
}

// service runs `sema device service …` with another service manager.
func (m *machine) service(k *keeper, args ...string) said {
	m.t.Helper()
	m.services = serviceHost{
		manager: func() (service.Manager, error) { return k, nil },
		program: func() (string, []string, error) { return "/opt/bin/sema", nil, nil },
	}
	return m.run(append([]string{"device", "service"}, args...)...)
}

// What install puts into a service, serve must take, and take in the same sense.
func TestAServiceRunsServeWithTheFlagsOfItsInstallation(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	root := t.TempDir()
	t.Chdir(filepath.Dir(root))
	if err := os.Mkdir("some", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/sh", "some/sh"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		given []string
		want  serveFlags
	}{
		"none": {nil, serveFlags{device: id, logFormat: "text", logLevel: "info", drain: 10 * time.Second, env: "auto"}},
		"all": {[]string{"--log-format", "json", "--log-level", "debug", "--drain-timeout", "1m", "--shell", "./some/sh", "--env", "login",
			"--allow-root", filepath.Base(root), "--allow-root", "/", "--log-commands"},
			serveFlags{device: id, logFormat: "json", logLevel: "debug", drain: time.Minute, shell: filepath.Join(filepath.Dir(root), "some/sh"),
				env: "login", allowRoots: []string{root, "/"}, logCommands: true}},
		"a shell on PATH": {[]string{"--shell", "sh"},
			serveFlags{device: id, logFormat: "text", logLevel: "info", drain: 10 * time.Second, env: "auto", shell: "sh"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{}
			if s := m.service(k, append([]string{"install"}, c.given...)...); s.code != 0 {
				t.Fatal(s.stderr)
			}
			if k.spec.DeviceID != id || k.spec.Binary != "/opt/bin/sema" || k.spec.Home != m.env["SEMA_HOME"] || k.spec.DrainTimeout != c.want.drain {
				t.Errorf("spec %+v", k.spec)
			}
			serve := newServe(system())
			if err := serve.ParseFlags(append([]string{"--device", id}, k.spec.Options...)); err != nil {
				t.Fatalf("serve does not take %q: %v", k.spec.Options, err)
			}
			var got serveFlags
			flags := serve.Flags()
			got.device, _ = flags.GetString("device")
			got.logFormat, _ = flags.GetString("log-format")
			got.logLevel, _ = flags.GetString("log-level")
			got.drain, _ = flags.GetDuration("drain-timeout")
			got.shell, _ = flags.GetString("shell")
			got.env, _ = flags.GetString("env")
			got.allowRoots, _ = flags.GetStringArray("allow-root")
			got.logCommands, _ = flags.GetBool("log-commands")
			if got.device != c.want.device || got.logFormat != c.want.logFormat || got.logLevel != c.want.logLevel || got.drain != c.want.drain ||
				got.shell != c.want.shell || got.env != c.want.env || !slices.Equal(got.allowRoots, c.want.allowRoots) || got.logCommands != c.want.logCommands {
				t.Errorf("serve would get %+v, want %+v", got, c.want)
			}
		})
	}
	if newServe(system()).Flags().Lookup(service.ZeroWhenFinalFlag) == nil || newServe(system()).Flags().Lookup(service.LogFileFlag) == nil {
		t.Error("serve lacks a flag that a LaunchAgent passes")
	}
}

func TestWhatInstallSaysFitsATerminal(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	m.env["HTTPS_PROXY"] = "http://ada:geheim@proxy.example.com:3128"
	s := m.service(&keeper{}, "install")
	fits(t, "results", s.stdout)
	fits(t, "notes", s.stderr)
	if !strings.Contains(s.stderr, "HTTPS_PROXY") || !strings.Contains(s.stderr, "do this") || strings.Contains(s.stdout+s.stderr, "geheim") {
		t.Errorf("install said\n%s%s", s.stdout, s.stderr)
	}
}

func TestServiceFilesOfLongNamesFitATerminal(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	file := "/home/" + strings.Repeat("long-name/", 12) + ".config/systemd/user/x.service"
	for _, verb := range []string{"install", "status", "uninstall"} {
		k := &keeper{file: file, state: service.State{Manager: "systemd", Service: "x.service", File: file, Installed: true, Phase: "inactive"}}
		s := m.service(k, verb)
		fits(t, verb, s.stdout+s.stderr)
		if text := strings.Join(strings.Fields(s.stdout+s.stderr), ""); s.code != 0 || !strings.Contains(text, file) {
			t.Errorf("%s: exit %d\n%s%s", verb, s.code, s.stdout, s.stderr)
		}
	}
}

func TestFlagsThatServeWouldRefuseAreRefusedAtOnce(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	for _, given := range [][]string{
		{"--env", "other"}, {"--log-format", "xml"}, {"--log-level", "loud"}, {"--drain-timeout", "-1s"}, {"--allow-root", "/not/there"},
		{"--shell", "/not/there"}, {"--shell", "no-such-shell"}, {"--shell", "no-such-shell", "--env", "inherit"},
	} {
		k := &keeper{}
		if s := m.service(k, append([]string{"install"}, given...)...); s.code != exitUsage || !strings.Contains(s.stderr, given[0]) || len(k.did) > 0 {
			t.Errorf("%q: exit %d, %s; did %q", given, s.code, s.stderr, k.did)
		}
	}
}

func TestAServiceThatCouldOnlyEndIsNotStarted(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	lock, err := fence.Lock(filepath.Join(m.record(id).Dir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"install", "start"} {
		k := &keeper{}
		s := m.service(k, verb)
		if s.code != exitHeld || !strings.Contains(s.stderr, "is being served by process") || len(k.did) > 0 {
			t.Errorf("%s beside an executor: exit %d, %s; did %q", verb, s.code, s.stderr, k.did)
		}
		k = &keeper{state: service.State{Running: true}} // the executor is the service's own
		if s := m.service(k, verb); s.code != 0 || len(k.did) != 1 {
			t.Errorf("%s of a running service: exit %d, %s", verb, s.code, s.stderr)
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := m.home().Revoke(t.Context(), m.record(id), m.stores(), m.now()); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"install", "start"} {
		k := &keeper{}
		if s := m.service(k, verb); s.code != exitRevoked || !strings.Contains(s.stderr, "Enroll again") || len(k.did) > 0 {
			t.Errorf("%s of a revoked device: exit %d, %s; did %q", verb, s.code, s.stderr, k.did)
		}
	}
}

func TestAServiceOutlivesItsRecordAndCanBeRemoved(t *testing.T) {
	m := newMachine(t)
	for _, verb := range []string{"uninstall", "start", "stop", "status", "logs"} {
		k := &keeper{}
		if s := m.service(k, verb); s.code != exitNoDevice {
			t.Errorf("%s without any device: exit %d, %s", verb, s.code, s.stderr)
		}
		k = &keeper{state: service.State{Installed: true}}
		if s := m.service(k, verb, "--device", "dev_gone"); s.code != 0 {
			t.Errorf("%s by name: exit %d, %s", verb, s.code, s.stderr)
		}
	}
	if s := m.service(&keeper{}, "status", "--device", "dev_gone"); s.code != exitNoDevice {
		t.Errorf("of neither a device nor a service: exit %d, %s", s.code, s.stdout)
	}
}

func TestAFailedStartEndsWithTheExecutorsCode(t *testing.T) {
	m := newMachine(t)
	m.enroll("")
	k := &keeper{err: &service.StartError{Service: "x.service", Exit: &service.Exit{Code: exitSuperseded}}}
	for _, verb := range []string{"install", "start"} {
		if s := m.service(k, verb); s.code != exitSuperseded || !strings.Contains(s.stderr, "superseded") || !strings.Contains(s.stderr, "sema device service logs") {
			t.Errorf("%s: exit %d, %s", verb, s.code, s.stderr)
		}
	}
}

func TestEveryExitCodeOfServeIsFinalOrIsNot(t *testing.T) {
	for code, final := range map[int]bool{
		exitOK: true, exitUnexpected: false, exitUsage: true, exitNoDevice: true, exitHeld: true, exitRevoked: true,
		exitSuperseded: true, exitTooOld: true, exitKeyUnusable: false,
	} {
		if service.Final(code) != final {
			t.Errorf("code %d: final is %t", code, !final)
		}
		if !strings.Contains(service.Meaning(code), ", ") {
			t.Errorf("code %d has no words", code)
		}
		want := code
		if final {
			want = exitOK
		}
		if got := told([]string{"device", "serve", "--" + service.ZeroWhenFinalFlag}, code); got != want {
			t.Errorf("a manager that asks is told %d for %d", got, code)
		}
		if got := told([]string{"device", "serve"}, code); got != code {
			t.Errorf("everyone else is told %d for %d", got, code)
		}
	}
}

func TestTheLogFileHasTheLastWords(t *testing.T) {
	m := newMachine(t)
	log := filepath.Join(t.TempDir(), "logs", "device.log")
	s := m.run("device", "serve", "--"+service.LogFileFlag, log, "--"+service.ZeroWhenFinalFlag)
	if s.code != exitOK || s.stderr != "" {
		t.Errorf("exit %d, stderr %q", s.code, s.stderr)
	}
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), "sema device enroll") {
		t.Errorf("the log is %q, %v", text, err)
	}
	s = m.run("device", "serve", "--"+service.LogFileFlag, log)
	if s.code != exitNoDevice || !strings.Contains(s.stderr, "sema device enroll") {
		t.Errorf("who is no service manager hears nothing: exit %d, stderr %q", s.code, s.stderr)
	}
	if s := m.run("device", "serve", "--no-such-flag", "--"+service.ZeroWhenFinalFlag); s.code != exitOK {
		t.Errorf("a flag of another version is tried again and again: exit %d", s.code)
	}
}

func TestSystemdHearsWhatTheExecutorDoes(t *testing.T) {
	hear := userunit.Socket(t)
	tell := announce(service.TakeNotifier(), slog.New(slog.DiscardHandler))
	for _, s := range []link.State{
		{Phase: link.Starting}, {Phase: link.BackingOff, Cause: link.Causes()[1]}, {Phase: link.Active}, {Phase: link.Leaving},
	} {
		tell(s)
	}
	cause := words(string(link.Causes()[1]))
	for _, want := range []string{"STATUS=starting", "READY=1", "STATUS=backing off (" + cause + ")", "STATUS=active", "STATUS=leaving", "STOPPING=1"} {
		if got := hear(); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
}

func TestServiceStatusReadsWell(t *testing.T) {
	m := newMachine(t)
	yes, no := true, false
	const id = "dev_01J8ZQ4T9X0000000000000000"
	for name, c := range map[string]struct {
		state service.State
		want  string
	}{
		"running": {service.State{Manager: "systemd", Service: "x.service", File: "/x.service", Installed: true, Enabled: true, Lingering: &yes,
			Running: true, Phase: "active (running)", PID: 7, Restarts: 2, Text: "active"}, `device     dev_01J8ZQ4T9X0000000000000000
service    x.service (systemd)
file       /x.service
state      active (running), pid 7, started again 2 times
executor   active
starts     by itself, with the machine
`},
		"revoked": {service.State{Manager: "systemd", Service: "x.service", File: "/x.service", Installed: true, Edited: true, Enabled: true, Lingering: &no,
			Phase: "failed", LastExit: &service.Exit{Code: 5}}, `device     dev_01J8ZQ4T9X0000000000000000
service    x.service (systemd)
file       /x.service
           edited since it was installed; --force replaces or removes it
state      failed
last end   exit code 5, revoked; enroll again
           Its last words:
             sema device service logs --device dev_01J8ZQ4T9X0000000000000000
starts     by itself, when you log in
           It ends with your last session. To change that:
             sudo loginctl enable-linger $USER
`},
		"about to restart": {service.State{Manager: "systemd", Service: "x.service", File: "/x.service", Installed: true, Enabled: true, Lingering: &yes,
			Restarting: true, Phase: "activating (auto-restart)", LastExit: &service.Exit{Code: 9}}, `device     dev_01J8ZQ4T9X0000000000000000
service    x.service (systemd)
file       /x.service
state      activating (auto-restart)
           It ended, and is started again by itself in a moment.
last end   exit code 9, the private key cannot be read
           Its last words:
             sema device service logs --device dev_01J8ZQ4T9X0000000000000000
starts     by itself, with the machine
`},
		"masked": {service.State{Manager: "systemd", Service: "x.service", File: "/x.service", Installed: true, Edited: true, Masked: true,
			Phase: "inactive"}, `device     dev_01J8ZQ4T9X0000000000000000
service    x.service (systemd)
file       /x.service
state      inactive
starts     never: it is masked
           Lift that:
             systemctl --user unmask x.service
           And install it again:
             sema device service install --device dev_01J8ZQ4T9X0000000000000000
`},
		"its file is gone": {service.State{Manager: "systemd", Service: "x.service", File: "/x.service", Orphaned: true, Running: true, PID: 7,
			Phase: "active (running)"}, `device     dev_01J8ZQ4T9X0000000000000000
service    x.service: its file is gone, and systemd still has it: active
           (running), pid 7
file       /x.service (removed)
           Stop it and remove what is left:
             sema device service uninstall --device \
               dev_01J8ZQ4T9X0000000000000000
           Or put its file back:
             sema device service install --device dev_01J8ZQ4T9X0000000000000000
`},
		"stopped": {service.State{Manager: "launchd", Service: "x", File: "/x.plist", Installed: true, Phase: "not running",
			LastExit: &service.Exit{Signal: "Killed: 9"}}, `device     dev_01J8ZQ4T9X0000000000000000
service    x (launchd)
file       /x.plist
state      not running
last end   ended by a signal: Killed: 9
           Its last words:
             sema device service logs --device dev_01J8ZQ4T9X0000000000000000
starts     when told to
           Start it:
             sema device service start --device dev_01J8ZQ4T9X0000000000000000
`},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{state: c.state}
			if s := m.service(k, "status", "--device", id); s.code != 0 || s.stdout != c.want {
				t.Errorf("exit %d, got\n%s\nwant\n%s", s.code, s.stdout, c.want)
			}
			fits(t, name, c.want)
			s := m.service(k, "status", "--device", id, "--json")
			var back serviceStatus
			if err := json.Unmarshal([]byte(s.stdout), &back); err != nil || back.DeviceID != id || back.Phase != c.state.Phase || back.Installed != c.state.Installed {
				t.Errorf("as JSON: %s, %v", s.stdout, err)
			}
		})
	}
}

func TestServiceStatusOfADeviceWithoutAService(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	want := "device     " + id + "\nservice    not installed\n           Install it:\n             sema device service install\n"
	if s := m.service(&keeper{}, "status"); s.code != 0 || s.stdout != want {
		t.Errorf("exit %d, got\n%s\nwant\n%s", s.code, s.stdout, want)
	}
	if s := m.service(&keeper{}, "status", "--json"); s.code != 0 || !strings.Contains(s.stdout, `"installed":false`) {
		t.Errorf("%+v", s)
	}
}

func TestServiceHelpFitsATerminal(t *testing.T) {
	m := newMachine(t)
	for _, verb := range []string{"", "install", "uninstall", "start", "stop", "status", "logs"} {
		s := m.run(slices.DeleteFunc([]string{"device", "service", verb, "--help"}, func(w string) bool { return w == "" })...)
		if s.code != 0 || !strings.Contains(s.stdout, "Examples:") {
			t.Errorf("%s --help: exit %d\n%s", verb, s.code, s.stdout)
		}
		fits(t, verb+" --help", s.stdout)
	}
}
