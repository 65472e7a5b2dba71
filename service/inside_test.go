package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/userunit"
)

// TestUnderARealUserManager runs the tests of this file's second half below a
// real `systemd --user`.
func TestUnderARealUserManager(t *testing.T) {
	program := filepath.Join(userunit.Folder(t), "service.test")
	userunit.CopyTests(t, program)
	userunit.Below(t, "../scripts/with-systemd-user", program, program)
}

// inside is one device's service below a real user manager.
type inside struct {
	t *testing.T
	m Manager
	s Spec
}

func newInside(t *testing.T, deviceID string) *inside {
	t.Helper()
	program := userunit.Program(t)
	m, err := Here(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	userunit.RestartAfter(t, 100*time.Millisecond)
	in := &inside{t: t, m: m, s: Spec{DeviceID: deviceID, Binary: program, Home: t.TempDir(), DrainTimeout: 5 * time.Second}}
	t.Cleanup(func() {
		_, err := m.Uninstall(context.Background(), deviceID, true)
		var none *NotInstalledError
		if err != nil && !errors.As(err, &none) {
			t.Error(err)
		}
	})
	return in
}

func (in *inside) put(name, text string) {
	in.t.Helper()
	if err := os.WriteFile(filepath.Join(in.s.Home, name), []byte(text), 0o600); err != nil {
		in.t.Fatal(err)
	}
}

func (in *inside) install() *Installed {
	in.t.Helper()
	done, err := in.m.Install(in.t.Context(), in.s, false)
	if err != nil {
		in.t.Fatal(err)
	}
	return done
}

func (in *inside) state() State {
	in.t.Helper()
	s, err := in.m.State(in.t.Context(), in.s.DeviceID)
	if err != nil {
		in.t.Fatal(err)
	}
	return s
}

// await looks until the state is as wanted.
func (in *inside) await(what string, wanted func(State) bool) State {
	in.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		s := in.state()
		if wanted(s) {
			return s
		}
		if time.Now().After(deadline) {
			in.t.Fatalf("not %s: %+v", what, s)
		}
	}
}

func (in *inside) launch() launch {
	in.t.Helper()
	text, err := os.ReadFile(filepath.Join(in.s.Home, "launch.json"))
	if err != nil {
		in.t.Fatal(err)
	}
	var l launch
	if err := json.Unmarshal(text, &l); err != nil {
		in.t.Fatal(err)
	}
	return l
}

func TestInsideInstallStartsAndInstallingAgainChangesNothing(t *testing.T) {
	in := newInside(t, "dev_install")
	before := treeOf(t, os.Getenv("HOME"))
	done := in.install()
	if done.Change != Created || !done.Started {
		t.Errorf("first: %+v", done)
	}
	if notes := strings.Join(done.Notes, "\n"); !strings.Contains(notes, "sudo loginctl enable-linger unit") {
		t.Errorf("without a login manager, the notes are %q", notes)
	}
	first := in.state()
	if !first.Running || !first.Enabled || first.Edited || first.Text != "stands in for an executor" {
		t.Errorf("state %+v", first)
	}
	if first.PID != in.launch().PID {
		t.Errorf("systemd says %d, the executor is %d", first.PID, in.launch().PID)
	}
	with := treeOf(t, os.Getenv("HOME"))

	done = in.install()
	if done.Change != Unchanged || done.Started || done.Restarted {
		t.Errorf("again: %+v", done)
	}
	if again := in.state(); !reflect.DeepEqual(first, again) {
		t.Errorf("state was %+v and is %+v", first, again)
	}
	if again := treeOf(t, os.Getenv("HOME")); !slices.Equal(with, again) {
		t.Errorf("files were %q and are %q", with, again)
	}

	in.s.Options = []string{"--log-commands"}
	done = in.install()
	if done.Change != Replaced || !done.Restarted {
		t.Errorf("with another option: %+v", done)
	}
	if args := in.launch().Args; args[len(args)-1] != "--log-commands" {
		t.Errorf("runs as %q", args)
	}

	if _, err := in.m.Uninstall(t.Context(), in.s.DeviceID, false); err != nil {
		t.Fatal(err)
	}
	if after := treeOf(t, os.Getenv("HOME")); !slices.Equal(before, after) {
		t.Errorf("files were %q and are %q", before, after)
	}
	if s := in.state(); s.Installed || s.Running {
		t.Errorf("state %+v", s)
	}
	loaded, err := exec.Command("systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "sema-device-dev_install*").Output()
	if err != nil || len(loaded) > 0 {
		t.Errorf("systemd still knows %q, %v", loaded, err)
	}
	var none *NotInstalledError
	if err := in.m.Start(t.Context(), in.s.DeviceID); !errors.As(err, &none) {
		t.Errorf("start afterwards: %v", err)
	}
}

func TestInsideAKilledExecutorIsStartedAgain(t *testing.T) {
	in := newInside(t, "dev_killed")
	in.install()
	for range 6 { // more often than systemd's own limit would bear
		before := in.state()
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		after := in.await("started again", func(s State) bool { return s.Running && s.Phase == "active (running)" && s.PID != before.PID })
		if after.Restarts != before.Restarts+1 {
			t.Fatalf("%d restarts, then %d", before.Restarts, after.Restarts)
		}
	}
}

func TestInsideOnlyTheRightCodesAreStartedAgain(t *testing.T) {
	in := newInside(t, "dev_codes")
	in.install()
	for code := range 10 {
		if code == 8 {
			continue // serve never ends with it
		}
		before := in.state()
		in.put("end", string(rune('0'+code)))
		if err := syscall.Kill(before.PID, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if !Final(code) {
			in.await("started again", func(s State) bool { return s.Phase == "active (running)" && s.PID != before.PID })
			continue
		}
		after := in.await("at rest", func(s State) bool { return s.Phase == "failed" || s.Phase == "inactive" })
		if after.LastExit == nil || after.LastExit.Code != code {
			t.Errorf("after code %d: %+v", code, after.LastExit)
		}
		if after.Restarts != before.Restarts {
			t.Errorf("after code %d it is %+v", code, after)
		}
		if err := in.m.Start(t.Context(), in.s.DeviceID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInsideAnEndBeforeUpIsAFailedStartWithItsReason(t *testing.T) {
	in := newInside(t, "dev_revoked")
	in.put("end-at-start", "5")
	_, err := in.m.Install(t.Context(), in.s, false)
	var failed *StartError
	if !errors.As(err, &failed) {
		t.Fatalf("install: %v", err)
	}
	if failed.Exit == nil || failed.Exit.Code != 5 || failed.ExitCode() != 5 || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("%v, %+v", err, failed.Exit)
	}
}

func TestInsideAStopLetsARunningCommandFinish(t *testing.T) {
	in := newInside(t, "dev_drain")
	in.put("command", "echo $$ >working; sleep 1; echo finished >finished")
	in.install()
	working := filepath.Join(in.s.Home, "working")
	in.await("running its command", func(State) bool { return exists(working) })
	if err := in.m.Stop(t.Context(), in.s.DeviceID); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(in.s.Home, "finished")) {
		t.Error("the command did not finish")
	}
	s := in.state()
	if s.Running || s.Phase != "inactive" || !s.Enabled {
		t.Errorf("state %+v", s)
	}
	in.logged("stand-in: up", "stand-in: drained")
}

// logged looks until the log has the lines: the journal takes them in after they
// were written.
func (in *inside) logged(lines ...string) {
	in.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var log bytes.Buffer
		err := in.m.Logs(in.t.Context(), in.s.DeviceID, LogQuery{Lines: 10}, &log)
		if nothing := (*NoLogError)(nil); err != nil && !errors.As(err, &nothing) {
			in.t.Fatal(err)
		}
		missing := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(log.String(), line) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			in.t.Fatalf("the log lacks %q (%v):\n%s", missing, err, log.String())
		}
	}
}

func TestInsideValuesArriveByteForByte(t *testing.T) {
	in := newInside(t, "dev_values")
	odd := []string{
		`plain`, `two words`, ` blanks around `, `50%`, `%h %n`, `$HOME`, `${HOME}`, `$$`, `"double"`, `it's`, `back\slash`, `\x41`, `;`,
		`#no comment`, `-@:+!`, `snö ☃`, `a=b`, `~`, `*?[]`, `trailing\`, ``,
	}
	for _, v := range odd {
		in.s.Options = append(in.s.Options, v)
		in.s.Environment = append(in.s.Environment, "ODD_"+string(rune('A'+len(in.s.Environment)))+"="+v)
	}
	home := filepath.Join(in.s.Home, `100% "my" $HOME\home of`+` 'ours'`)
	program := filepath.Join(in.s.Home, `the $HOME 100%h; #programs`, "sema")
	for _, dir := range []string{home, filepath.Dir(program)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	userunit.CopyTests(t, program)
	in.s.Home, in.s.Binary = home, program
	in.install()
	l := in.launch()
	if want := in.s.arguments(); !slices.Equal(l.Args[1:], want) {
		t.Errorf("arguments\n got %q\nwant %q", l.Args[1:], want)
	}
	for _, pair := range in.s.environment() {
		if !slices.Contains(l.Env, pair) {
			t.Errorf("the environment has no %q", pair)
		}
	}
	if slices.ContainsFunc(l.Env, func(pair string) bool { return strings.HasPrefix(pair, notifyVariable+"=") }) {
		t.Error("commands would inherit systemd's socket")
	}
	running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", l.PID))
	if err != nil || running != program {
		t.Errorf("runs %q, %v", running, err)
	}
}

func TestInsideTheLimitsAreThoseOfTheUnit(t *testing.T) {
	in := newInside(t, "dev_limits")
	in.install()
	text, err := exec.Command("systemctl", "--user", "show", unitName(in.s.DeviceID), "--timestamp=unix",
		"--property=LimitNOFILESoft,KillMode,TimeoutStopUSec,OOMPolicy,UMask,Type,Restart,StartLimitIntervalUSec,NeedDaemonReload").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"LimitNOFILESoft=65536", "KillMode=mixed", "TimeoutStopUSec=35s", "OOMPolicy=continue", "UMask=0022",
		"Type=notify", "Restart=on-failure", "StartLimitIntervalUSec=0", "NeedDaemonReload=no"} {
		if !slices.Contains(strings.Split(string(text), "\n"), line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func TestInsideAnEditedUnitIsKept(t *testing.T) {
	in := newInside(t, "dev_edited")
	done := in.install()
	text, err := os.ReadFile(done.File)
	if err != nil {
		t.Fatal(err)
	}
	mine := append(text, "# mine\n"...)
	if err := os.WriteFile(done.File, mine, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := in.state(); !s.Edited {
		t.Errorf("state %+v", s)
	}
	var foreign *ForeignFileError
	if _, err := in.m.Install(t.Context(), in.s, false); !errors.As(err, &foreign) {
		t.Errorf("install: %v", err)
	}
	if _, err := in.m.Uninstall(t.Context(), in.s.DeviceID, false); !errors.As(err, &foreign) {
		t.Errorf("uninstall: %v", err)
	}
	if now, err := os.ReadFile(done.File); err != nil || !bytes.Equal(now, mine) {
		t.Errorf("the edited unit is now %q, %v", now, err)
	}
	if !in.state().Running {
		t.Error("a refused uninstall stopped the service")
	}
	if done, err := in.m.Install(t.Context(), in.s, true); err != nil || done.Change != Replaced {
		t.Errorf("forced: %+v, %v", done, err)
	}
}

func TestInsideWithoutARuntimeFolderInTheEnvironment(t *testing.T) {
	in := newInside(t, "dev_su")
	t.Setenv("XDG_RUNTIME_DIR", "")
	in.install()
	if !in.state().Running {
		t.Error("does not run")
	}
}

func TestInsideAServiceWhoseFileIsGoneCanBeStoppedUninstalledAndInstalled(t *testing.T) {
	for name, reload := range map[string]bool{"systemd has noticed": true, "systemd has not noticed": false} {
		t.Run(name, func(t *testing.T) {
			in := newInside(t, "dev_orphan")
			before := treeOf(t, os.Getenv("HOME"))
			vanish := func() State {
				t.Helper()
				done := in.install()
				if err := os.Remove(done.File); err != nil {
					t.Fatal(err)
				}
				if reload {
					if out, err := exec.Command("systemctl", "--user", "daemon-reload").CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
				return in.state()
			}

			s := vanish()
			if s.Installed || !s.Orphaned || !s.Running || s.PID == 0 || s.Enabled {
				t.Errorf("state %+v", s)
			}
			if err := in.m.Stop(t.Context(), in.s.DeviceID); err != nil {
				t.Error(err)
			}
			if s := in.state(); s.Running || !s.Orphaned {
				t.Errorf("stopped, with its link left: %+v", s)
			}
			var none *NotInstalledError
			if err := in.m.Start(t.Context(), in.s.DeviceID); !errors.As(err, &none) {
				t.Errorf("start: %v", err)
			}

			vanish()
			if done, err := in.m.Install(t.Context(), in.s, false); err != nil || done.Change != Created {
				t.Errorf("install: %+v, %v", done, err)
			}
			if s := in.state(); !s.Installed || s.Orphaned || !s.Running || !s.Enabled {
				t.Errorf("installed again: %+v", s)
			}

			vanish()
			if done, err := in.m.Uninstall(t.Context(), in.s.DeviceID, false); err != nil || len(done.Notes) == 0 {
				t.Errorf("uninstall: %+v, %v", done, err)
			}
			if s := in.state(); s.Installed || s.Orphaned || s.Running {
				t.Errorf("uninstalled: %+v", s)
			}
			if after := treeOf(t, os.Getenv("HOME")); !slices.Equal(before, after) {
				t.Errorf("files were %q and are %q", before, after)
			}
			loaded, err := exec.Command("systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "sema-device-dev_orphan*").Output()
			if err != nil || len(loaded) > 0 {
				t.Errorf("systemd still knows %q, %v", loaded, err)
			}
			if _, err := in.m.Uninstall(t.Context(), in.s.DeviceID, false); !errors.As(err, &none) {
				t.Errorf("again: %v", err)
			}
		})
	}
}

func TestInsideAMaskedServiceIsSaidToBe(t *testing.T) {
	in := newInside(t, "dev_masked")
	done := in.install()
	if s := in.state(); s.Masked {
		t.Errorf("state %+v", s)
	}
	if err := os.Remove(done.File); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"stop", "mask"} {
		if out, err := exec.Command("systemctl", "--user", verb, unitName(in.s.DeviceID)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if s := in.state(); !s.Masked || s.Running || s.Enabled {
		t.Errorf("state %+v", s)
	}
}
