package service

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func aSpec() Spec {
	return Spec{DeviceID: "dev_01", Binary: "/opt/sema/bin/sema", Home: "/home/ada/.config/sema",
		Options: []string{"--env", "auto"}, DrainTimeout: 10 * time.Second}
}

// aSystemd is a manager on a machine with a running user manager.
func aSystemd(t *testing.T, answers map[string]answer) (*Systemd, *script, Config) {
	t.Helper()
	r := &script{t: t, answers: map[string]answer{
		"systemctl --user show sema-device-": {text: "UnitFileState=\nActiveState=inactive\nSubState=dead\nMainPID=0\n"},
		"loginctl show-user":                 {text: "no\n"},
	}}
	c := world(t, r, nil)
	r.answers["systemctl --user show --property=UnitPath"] = answer{text: "/etc/systemd/user " + c.HomeDir + "/.config/systemd/user\n"}
	for prefix, a := range answers {
		r.answers[prefix] = a
	}
	makeFile(t, c.Root+"/run/systemd/system/x")
	makeFile(t, c.Root+"/run/user/1000/systemd/private")
	return NewSystemd(c), r, c
}

func TestInstallTellsSystemdInThisOrder(t *testing.T) {
	m, r, c := aSystemd(t, nil)
	done, err := m.Install(t.Context(), aSpec(), false)
	if err != nil {
		t.Fatal(err)
	}
	if want := c.HomeDir + "/.config/systemd/user/sema-device-dev_01.service"; done.File != want || done.Change != Created || !done.Started {
		t.Errorf("%+v, want %s", done, want)
	}
	want := []string{
		"systemctl --user daemon-reload",
		"systemctl --user --quiet enable sema-device-dev_01.service",
		"loginctl --no-ask-password enable-linger ada",
		"systemctl --user reset-failed sema-device-dev_01.service",
		"systemctl --user start sema-device-dev_01.service",
	}
	if got := r.changes(); !slices.Equal(got, want) {
		t.Errorf("ran\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if want := "XDG_RUNTIME_DIR=" + c.Root + "/run/user/1000"; !slices.Contains(r.env[0], want) {
		t.Errorf("systemctl was not told %s: %q", want, r.env[0])
	}
}

func TestLingeringIsSwitchedOnOrTheCommandIsPrinted(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]answer
		asks    bool
		note    string
	}{
		"on already":  {map[string]answer{"loginctl show-user": {text: "yes\n"}}, false, ""},
		"switched on": {nil, true, "Switched on lingering for ada"},
		"not allowed": {map[string]answer{"loginctl --no-ask-password": {err: failing(1, "Access denied")}}, true, "  sudo loginctl enable-linger ada"},
	} {
		t.Run(name, func(t *testing.T) {
			m, r, _ := aSystemd(t, c.answers)
			done, err := m.Install(t.Context(), aSpec(), false)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(r.ran, "loginctl --no-ask-password enable-linger ada"); got != c.asks {
				t.Errorf("switched on: %t", got)
			}
			if notes := strings.Join(done.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q", notes)
			}
		})
	}
}

func TestEachMissingPieceOfSystemdHasItsMessage(t *testing.T) {
	for name, c := range map[string]struct {
		breaks  func(t *testing.T, c Config)
		answers map[string]answer
		why     string
		remedy  string
	}{
		"another init": {func(t *testing.T, c Config) { removeAll(t, c.Root+"/run/systemd") }, nil,
			"not run by systemd", "sema device serve --device dev_01"},
		"no session": {func(t *testing.T, c Config) { removeAll(t, c.Root+"/run/user") }, nil,
			"no XDG_RUNTIME_DIR", "sudo loginctl enable-linger ada"},
		"no user manager": {func(t *testing.T, c Config) { removeAll(t, c.Root+"/run/user/1000/systemd") }, nil,
			"no systemd of ada answers", "sudo loginctl enable-linger ada"},
		"no systemctl": {nil, map[string]answer{"systemctl": {err: &CommandError{Err: exec.ErrNotFound}}},
			"systemctl is not there", "sema device serve --device dev_01"},
		"refused by the bus": {nil, map[string]answer{"systemctl": {err: failing(1, "Failed to connect to bus: Permission denied")}},
			"Permission denied", "Log in as ada directly"},
	} {
		t.Run(name, func(t *testing.T) {
			m, r, config := aSystemd(t, nil)
			if c.breaks != nil {
				c.breaks(t, config)
			}
			if c.answers != nil {
				r.answers = c.answers
			}
			for verb, do := range everyVerb(t, m) {
				var none *NoManagerError
				if err := do(); !errors.As(err, &none) {
					t.Errorf("%s: %v", verb, err)
				} else if !strings.Contains(none.Error(), c.why) || !strings.Contains(none.Advice(), c.remedy) {
					t.Errorf("%s: %v\n%s", verb, none, none.Advice())
				}
			}
			if exists(m.file("dev_01")) {
				t.Error("a unit was written that nobody runs")
			}
		})
	}
}

// everyVerb is what a person can ask of a manager about a device without a
// service. None of it may advise to install one where that cannot be done.
func everyVerb(t *testing.T, m Manager) map[string]func() error {
	const id = "dev_01"
	return map[string]func() error{
		"install": func() error { _, err := m.Install(t.Context(), aSpec(), false); return err },
		"state":   func() error { _, err := m.State(t.Context(), id); return err },
		"start":   func() error { return m.Start(t.Context(), id) },
		"stop":    func() error { return m.Stop(t.Context(), id) },
		"logs":    func() error { return m.Logs(t.Context(), id, LogQuery{}, io.Discard) },
	}
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func TestTheUnitGoesWhereTheManagerLooks(t *testing.T) {
	m, _, c := aSystemd(t, nil)
	m.c.Getenv = func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": c.Root + "/elsewhere"}[name]
	}
	// This shell's XDG_CONFIG_HOME is not the manager's.
	done, err := m.Install(t.Context(), aSpec(), false)
	if err != nil || done.File != c.HomeDir+"/.config/systemd/user/sema-device-dev_01.service" {
		t.Errorf("%+v, %v", done, err)
	}
	if got := m.file("dev_01"); got != done.File {
		t.Errorf("found again at %s", got)
	}
}

func TestAFailedStartCarriesTheExecutorsCode(t *testing.T) {
	for _, c := range []struct {
		shown string
		exit  string
		code  int
	}{
		{"ExecMainCode=1\nExecMainStatus=4\n", "exit code 4, another executor on this machine serves the device", 4},
		{"ExecMainCode=1\nExecMainStatus=9\n", "exit code 9, the private key cannot be read", 1},
		{"ExecMainCode=1\nExecMainStatus=203\n", "exit code 203, the program could not be run", 1},
		{"ExecMainCode=2\nExecMainStatus=9\n", "ended by a signal: killed", 1},
		{"ExecMainCode=0\nExecMainStatus=0\n", "Job failed", 1},
	} {
		m, _, _ := aSystemd(t, map[string]answer{
			"systemctl --user start":             {err: failing(1, "Job failed")},
			"systemctl --user show sema-device-": {text: "ActiveState=failed\nSubState=failed\n" + c.shown},
		})
		_, err := m.Install(t.Context(), aSpec(), false)
		var failed *StartError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), c.exit) || failed.ExitCode() != c.code {
			t.Errorf("%q: %v", c.shown, err)
		}
	}
}

func TestAUnitThatIsLeftGoesAlsoWhereNoSystemdRuns(t *testing.T) {
	m, r, c := aSystemd(t, nil)
	done, err := m.Install(t.Context(), aSpec(), false)
	if err != nil {
		t.Fatal(err)
	}
	enabled := filepath.Join(filepath.Dir(done.File), "default.target.wants", filepath.Base(done.File))
	if err := os.Mkdir(filepath.Dir(enabled), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(done.File, enabled); err != nil {
		t.Fatal(err)
	}
	removeAll(t, c.Root+"/run/user") // a systemd that is out of reach may have it running
	var none *NoManagerError
	if _, err := m.Uninstall(t.Context(), "dev_01", false); !errors.As(err, &none) || !exists(done.File) {
		t.Errorf("without a session: %v", err)
	}
	removeAll(t, c.Root+"/run/systemd")
	r.ran = nil
	removed, err := m.Uninstall(t.Context(), "dev_01", false)
	if err != nil || removed.File != done.File || len(removed.Notes) != 1 || !strings.Contains(removed.Notes[0], "not run by systemd") {
		t.Fatalf("%+v, %v", removed, err)
	}
	if left := treeOf(t, c.HomeDir+"/.config"); len(left) > 1 || len(r.ran) > 0 {
		t.Errorf("left %q, ran %q", left, r.ran)
	}
	var absent *NotInstalledError
	if _, err := m.Uninstall(t.Context(), "dev_01", false); !errors.As(err, &absent) || strings.Contains(absent.Advice(), "install") {
		t.Errorf("again: %v", err)
	}
}

func TestUninstallStopsBeforeItRemoves(t *testing.T) {
	m, r, c := aSystemd(t, map[string]answer{"loginctl show-user": {text: "yes\n"}})
	done, err := m.Install(t.Context(), aSpec(), false)
	if err != nil {
		t.Fatal(err)
	}
	r.ran = nil
	removed, err := m.Uninstall(t.Context(), "dev_01", false)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"systemctl --user stop sema-device-dev_01.service",
		"systemctl --user --quiet disable sema-device-dev_01.service",
		"systemctl --user daemon-reload",
		"systemctl --user reset-failed sema-device-dev_01.service",
	}
	if got := r.changes(); !slices.Equal(got, want) {
		t.Errorf("ran %q", got)
	}
	if exists(done.File) || exists(c.HomeDir+"/.config/systemd") || !exists(c.HomeDir+"/.config") {
		t.Errorf("left: %q", treeOf(t, c.HomeDir))
	}
	if !strings.Contains(strings.Join(removed.Notes, "\n"), "loginctl disable-linger ada") {
		t.Errorf("notes %q", removed.Notes)
	}
}

func TestAFailedStopRemovesNothing(t *testing.T) {
	m, r, _ := aSystemd(t, nil)
	done, err := m.Install(t.Context(), aSpec(), false)
	if err != nil {
		t.Fatal(err)
	}
	r.answers["systemctl --user stop"] = answer{err: failing(1, "no")}
	if _, err := m.Uninstall(t.Context(), "dev_01", false); err == nil || !exists(done.File) {
		t.Errorf("uninstall: %v", err)
	}
}

func TestAnEmptyJournalSaysWhoCanReadIt(t *testing.T) {
	for _, failure := range []error{nil, failing(1, "No journal files were opened due to insufficient permissions.")} {
		m, r, _ := aSystemd(t, map[string]answer{"journalctl": {err: failure}})
		if _, err := m.Install(t.Context(), aSpec(), false); err != nil {
			t.Fatal(err)
		}
		err := m.Logs(t.Context(), "dev_01", LogQuery{Lines: 7, Follow: true}, &bytes.Buffer{})
		var nothing *NoLogError
		if !errors.As(err, &nothing) || !strings.Contains(nothing.Advice(), "sudo journalctl _UID=1000 _SYSTEMD_USER_UNIT=sema-device-dev_01.service") {
			t.Errorf("logs: %v", err)
		}
		want := "journalctl --user --unit=sema-device-dev_01.service --lines=7 --no-pager --quiet --follow"
		if got := r.ran[len(r.ran)-1]; got != want {
			t.Errorf("ran %s", got)
		}
	}
}

// systemd judges the unit itself: an unknown key or a value it does not like is
// a failure.
func TestSystemdTakesTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		lack(t, "systemd-analyze")
	}
	program := filepath.Join(t.TempDir(), `a program with $ and % and ;`)
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Spec{
		"plain": {DeviceID: "dev_01", Home: "/home/ada/.config/sema", DrainTimeout: time.Second},
		"odd": {DeviceID: "dev_02", Home: `/home/a "b" $c %d\e 'f'`, Options: []string{`%x "y" $z \`, ";", ""}, DrainTimeout: time.Hour,
			Environment: []string{`NO_PROXY=a,b c %`, `SSL_CERT_FILE=/x "y".pem`}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Binary = program
			text, err := unit(s)
			if err != nil {
				t.Fatal(err)
			}
			runtimeDir := t.TempDir()
			path := filepath.Join(t.TempDir(), unitName(s.DeviceID))
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			verify := func() (string, error) {
				cmd := exec.Command(analyze, "--user", "--man=no", "--recursive-errors=yes", "verify", path)
				cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtimeDir)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := verify(); err != nil || out != "" {
				t.Errorf("%v\n%s\n%s", err, out, text)
			}
			// And it does look: a misspelt key does not pass.
			wrong := bytes.Replace(text, []byte("KillMode="), []byte("KilMode="), 1)
			if err := os.WriteFile(path, wrong, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := verify(); err == nil {
				t.Error("a misspelt key passed")
			}
		})
	}
}

func TestTheUnitHasWhatTheExecutorReliesOn(t *testing.T) {
	s := aSpec()
	s.DrainTimeout = 45 * time.Second
	text, err := unit(s)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range []string{
		"Type=notify", "Restart=on-failure", "RestartSec=10", "RestartPreventExitStatus=2 3 4 5 6 7", "StartLimitIntervalSec=0",
		"KillMode=mixed", "TimeoutStopSec=75", "OOMPolicy=continue", "LimitNOFILE=65536:524288", "WantedBy=default.target",
		"Environment=SEMA_HOME=/home/ada/.config/sema",
		"ExecStart=/opt/sema/bin/sema device serve --device dev_01 --env auto",
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	for _, key := range []string{"UMask", "WorkingDirectory", "Delegate", "StandardOutput"} {
		if strings.Contains(string(text), "\n"+key) {
			t.Errorf("%s is not to be set", key)
		}
	}
}

func TestWhatAUnitCannotHoldIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"a newline in the home":     func(s *Spec) { s.Home = "/a\nb" },
		"bytes in the home":         func(s *Spec) { s.Home = "/a\xff" },
		"a relative home":           func(s *Spec) { s.Home = "sema" },
		"a relative program":        func(s *Spec) { s.Binary = "sema" },
		"a quote in the program":    func(s *Spec) { s.Binary = `/opt/o'neil/sema` },
		"a tab in an option":        func(s *Spec) { s.Options = []string{"a\tb"} },
		"an id that is a path":      func(s *Spec) { s.DeviceID = "../x" },
		"an empty id":               func(s *Spec) { s.DeviceID = "" },
		"a control char in a value": func(s *Spec) { s.Environment = []string{"NO_PROXY=a\x1b"} },
	} {
		t.Run(name, func(t *testing.T) {
			m, r, c := aSystemd(t, nil)
			s := aSpec()
			change(&s)
			_, err := m.Install(t.Context(), s, true)
			var value *ValueError
			if !errors.As(err, &value) || value.ExitCode() != 2 {
				t.Errorf("install: %v", err)
			}
			if len(r.changes()) > 0 || exists(c.HomeDir) {
				t.Errorf("something happened: %q", r.ran)
			}
		})
	}
}

// A device id becomes part of file names in every call.
func TestAnIdThatIsAPathIsRefusedEverywhere(t *testing.T) {
	m, _, c := aSystemd(t, nil)
	l := NewLaunchd(c)
	const id = "../../x"
	for name, call := range map[string]func(Manager) error{
		"uninstall": func(m Manager) error { _, err := m.Uninstall(t.Context(), id, true); return err },
		"start":     func(m Manager) error { return m.Start(t.Context(), id) },
		"stop":      func(m Manager) error { return m.Stop(t.Context(), id) },
		"state":     func(m Manager) error { _, err := m.State(t.Context(), id); return err },
		"logs":      func(m Manager) error { return m.Logs(t.Context(), id, LogQuery{}, &bytes.Buffer{}) },
	} {
		for _, m := range []Manager{m, l} {
			var value *ValueError
			if err := call(m); !errors.As(err, &value) {
				t.Errorf("%s by %T: %v", name, m, err)
			}
		}
	}
}

func ExampleMeaning() {
	fmt.Println(Meaning(5))
	fmt.Println(Meaning(42))
	// Output:
	// exit code 5, revoked; enroll again
	// exit code 42
}

// systemd keeps the last word of an executor that was killed.
func TestADeadExecutorsLastWordIsNotShownAsItsState(t *testing.T) {
	for pid, want := range map[string]string{"7": "active", "0": ""} {
		m, _, _ := aSystemd(t, map[string]answer{"systemctl --user show sema-device-": {
			text: "UnitFileState=enabled\nActiveState=active\nSubState=running\nMainPID=" + pid + "\nStatusText=active\n"}})
		state, err := m.show(t.Context(), nil, "dev_01")
		if err != nil || state.Text != want {
			t.Errorf("pid %s: %q, %v", pid, state.Text, err)
		}
	}
}
