package main

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/doctor"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/service"
)

// advised finds the commands of this program in a text for people: each is on a
// line of its own, which may go on below after a backslash.
var advised = regexp.MustCompile(`(?m)^ +(?:\$ )?(sema device.*)$`)

// Everything that is said in each of these situations is tried for being
// complete: the command is there, takes what it is given, and is told which
// device is meant.
func TestCommandsThatAreAdvisedCanBePastedWhereThereAreSeveralDevices(t *testing.T) {
	m := newMachine(t)
	first, second := m.enroll(""), m.enroll("")
	gone := m.enroll("")
	if err := m.home().Revoke(t.Context(), m.record(gone), m.stores(), m.now()); err != nil {
		t.Fatal(err)
	}
	chained := m.enroll("")
	if err := m.home().Update(m.record(chained), func(r *enroll.Record) { r.KeyStore = enroll.StoreKeychain }); err != nil {
		t.Fatal(err)
	}
	held, err := fence.Lock(filepath.Join(m.record(second).Dir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	no := false
	installed := service.State{Manager: "systemd", Service: "x.service", File: "/x.service", Installed: true, Phase: "inactive",
		Lingering: &no, LastExit: &service.Exit{Code: 1}}
	with := func(change func(*service.State)) *keeper {
		state := installed
		change(&state)
		return &keeper{state: state}
	}
	failing := func(err error) *keeper { return &keeper{state: installed, err: err} }
	for _, c := range []struct {
		line string
		k    *keeper
		says string // one of the commands
	}{
		{line: "list"},
		{line: "serve", says: "list"},
		{line: "status --device " + first, says: "serve"},
		{line: "status --device " + first, k: &keeper{state: installed}, says: "service start"},
		{line: "status --device " + first, k: with(func(s *service.State) { s.Restarting = true }), says: "service logs"},
		{line: "status --device " + first, k: with(func(s *service.State) { s.Running = true }), says: "service logs"},
		{line: "status --device " + first, k: &keeper{state: installed, silent: &service.NoManagerError{Manager: "systemd", Why: "it sleeps"}}, says: "doctor"},
		{line: "status --device " + gone, says: "enroll"},
		{line: "serve --device " + gone, says: "enroll"},
		{line: "serve --device " + chained, says: "key move file"},
		{line: "key move file --device " + chained, says: "key move file"},
		{line: "doctor", says: "service install"},
		{line: "doctor", k: &keeper{state: installed}, says: "service install"},
		{line: "doctor --device " + first, k: with(func(s *service.State) { s.Enabled = true }), says: "service start"},
		{line: "doctor --device " + first, k: with(func(s *service.State) { s.Restarting = true }), says: "service logs"},
		{line: "unenroll --yes --device " + second, k: with(func(s *service.State) { s.Running = true }), says: "service stop"},
		{line: "service status --device " + first, says: "service install"},
		{line: "service status --device " + first, k: &keeper{state: installed}, says: "service start"},
		{line: "service start --device " + first, k: failing(&service.StartError{DeviceID: first, Service: "x.service"}), says: "service logs"},
		{line: "service stop --device " + first, k: failing(&service.NotInstalledError{DeviceID: first}), says: "service install"},
		{line: "service stop --device dev_gone", k: &keeper{err: &service.NotInstalledError{DeviceID: "dev_gone"}}, says: "list"},
		{line: "service logs --device dev_gone", k: &keeper{err: &service.NoManagerError{Manager: "systemd"}}, says: "list"},
		{line: "service install --device " + first, says: "service status"},
		{line: "service install --device " + gone, says: "enroll"},
		{line: "service start --device " + gone, says: "enroll"},
		{line: "service start", says: "list"},
	} {
		k := cmp.Or(c.k, &keeper{})
		m.services.manager = func() (service.Manager, error) { return k, nil }
		m.services.program = func() (string, []string, error) { return "/opt/bin/sema", nil, nil }
		s := m.run(append([]string{"device"}, strings.Fields(c.line)...)...)
		text := s.stdout + s.stderr
		fits(t, c.line, text)
		whole := regexp.MustCompile(`\\\n +`).ReplaceAllString(text, "")
		found := advised.FindAllStringSubmatch(whole, -1)
		if inline := strings.Count(whole, "sema device"); inline != len(found) {
			t.Errorf("%s: a command inside a sentence, where it is broken or pasted with other words:\n%s", c.line, text)
		}
		var says []string
		for _, f := range found {
			says = append(says, f[1])
			complete(t, c.line, f[1])
		}
		want := "sema device " + c.says
		if c.says != "" && !slices.ContainsFunc(says, func(s string) bool { return strings.HasPrefix(s+" ", want+" ") }) {
			t.Errorf("%s: no %q in\n%s", c.line, want, text)
		}
	}
}

// Where no service can be had, whatever shows a device says what to run in its
// place, and nothing advises what would only fail.
func TestNobodyIsSentToInstallAServiceWhereThereCanBeNone(t *testing.T) {
	m := newMachine(t)
	none := &service.NoManagerError{Manager: "systemd", Why: "this machine is not run by systemd",
		Remedy: remedy.Step("Run this in the foreground", remedy.Command("serve"))}
	m.services.manager = func() (service.Manager, error) { return &keeper{silent: none}, nil }
	enroll := "enroll --key-store file --server " + m.url + " --workspace " + t.TempDir()
	for _, line := range []string{enroll, "status", "doctor", "service status"} {
		s := m.run(append([]string{"device"}, strings.Fields(line)...)...)
		fits(t, line, s.stdout+s.stderr)
		if s.code != 0 || strings.Contains(s.stdout, "service install") || !strings.Contains(s.stdout, "sema device serve\n") {
			t.Errorf("%s: %+v", line, s)
		}
	}
	for _, line := range []string{"doctor", "service status"} {
		if s := m.run(append([]string{"device"}, strings.Fields(line)...)...); !strings.Contains(strings.Join(strings.Fields(s.stdout), " "), none.Error()) {
			t.Errorf("%s does not say why: %s", line, s.stdout)
		}
	}
	if s := m.run("device", "service", "status", "--json"); s.code != 0 || !strings.Contains(s.stdout, `"installed":false`) || !strings.Contains(s.stdout, none.Why) {
		t.Errorf("as JSON: %+v", s)
	}
	for _, f := range m.examine(0).Devices[0].Findings {
		if f.Check == "service" && f.Level != doctor.OK {
			t.Errorf("a machine without a service manager is out of order: %+v", f)
		}
	}
}

// complete holds a command to what it takes, and to naming its device.
func complete(t *testing.T, line, command string) {
	t.Helper()
	root := newRoot(&app{getenv: os.Getenv})
	c, rest, err := root.Find(shellWords(command)[1:])
	if err != nil {
		t.Errorf("%s advises %q: %v", line, command, err)
		return
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%s advises %q: %v", line, command, err)
	} else if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Errorf("%s advises %q: %v", line, command, err)
	}
	if device := c.Flags().Lookup("device"); device != nil && !device.Changed {
		t.Errorf("%s advises %q, which does not say which device", line, command)
	}
}

// Where there is one device, nobody has to be told which.
func TestCommandsForTheOnlyDeviceDoWithoutItsName(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	for line, advises := range map[string]string{
		"status": "  sema device service install\n", "service status": "  sema device service install\n",
		"doctor": "    $ sema device service install\n",
	} {
		s := m.run(append([]string{"device"}, strings.Fields(line)...)...)
		if s.code != 0 || strings.Contains(s.stdout, "--device") || !strings.Contains(s.stdout, advises) {
			t.Errorf("%s: %+v", line, s)
		}
	}
	never := &service.NoManagerError{Manager: "systemd", Why: "it sleeps", Never: true,
		Remedy: remedy.Step("Run this", remedy.For(id, "serve"))}
	for _, k := range []*keeper{
		{err: never}, {err: &service.StartError{DeviceID: id, Service: "x"}}, {err: &service.NotInstalledError{DeviceID: id}},
	} {
		m.services.manager = func() (service.Manager, error) { return k, nil }
		s := m.run("device", "service", "start")
		if s.code != exitUnexpected || strings.Contains(s.stderr, "--device") || !strings.Contains(s.stderr, "\n  sema device s") {
			t.Errorf("%v: %+v", k.err, s)
		}
	}
	m.services.manager = func() (service.Manager, error) { return &keeper{silent: never}, nil }
	for _, line := range []string{"doctor", "service status"} {
		if s := m.run(append([]string{"device"}, strings.Fields(line)...)...); strings.Contains(s.stdout, "--device") || !strings.Contains(s.stdout, " sema device serve\n") {
			t.Errorf("%s: %+v", line, s)
		}
	}
}

// Who wants a service gone is not told to install it.
func TestThereIsNothingToUninstallOfADeviceWithoutAService(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	m.services.manager = func() (service.Manager, error) {
		return &keeper{err: &service.NotInstalledError{DeviceID: id, Removing: true}}, nil
	}
	if s := m.run("device", "service", "uninstall"); s.code != exitUnexpected || strings.Contains(s.stderr, "sema device") || !strings.Contains(s.stderr, "There is nothing to remove.") {
		t.Errorf("%+v", s)
	}
}

// A key file is no keychain: what is advised for one that is gone for good would
// take the only key.
func TestAKeyFileThatCannotBeDeletedIsNotForgotten(t *testing.T) {
	m := newMachine(t)
	key := filepath.Join(m.record(m.enroll("")).Dir(), "key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(key, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s := m.run("device", "unenroll", "--yes"); s.code != exitKeyUnusable || strings.Contains(s.stderr, "keychain") {
		t.Errorf("%+v", s)
	}
}
