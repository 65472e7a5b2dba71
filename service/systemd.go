package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// Systemd is the systemd manager of one user.
type Systemd struct {
	c Config
}

// NewSystemd returns it.
func NewSystemd(c Config) *Systemd { return &Systemd{c: c} }

// reach finds the way to the user's manager: the environment that systemctl and
// journalctl need. Where XDG_RUNTIME_DIR is missing, as it is after `su` or in a
// cron job, its usual place does.
func (m *Systemd) reach(deviceID string) (env []string, err error) {
	unreachable := func(why, remedy string) error {
		return &NoManagerError{Manager: "systemd", Why: why, Remedy: remedy}
	}
	if _, err := os.Stat(m.c.Root + "/run/systemd/system"); err != nil {
		return nil, &NoManagerError{Manager: "systemd", Why: "this machine is not run by systemd", Remedy: elsewhere(deviceID), Never: true}
	}
	lingerFirst := remedy.Step("Start one that does not need a login", "sudo loginctl enable-linger "+remedy.Quote(m.c.User)) + "\nThen repeat this command."
	dir := m.c.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = fmt.Sprintf("%s/run/user/%d", m.c.Root, m.c.UID)
		if _, err := os.Stat(dir); err != nil {
			return nil, unreachable("there is no session (no XDG_RUNTIME_DIR, no "+dir+")", lingerFirst)
		}
		env = append(env, "XDG_RUNTIME_DIR="+dir)
	}
	for _, socket := range []string{"systemd/private", "bus"} {
		if _, err := os.Stat(filepath.Join(dir, socket)); err == nil {
			return env, nil
		}
	}
	return nil, unreachable("no systemd of "+m.c.User+" answers in "+dir, lingerFirst)
}

// systemctl asks or tells the user's manager about a device.
func (m *Systemd) systemctl(ctx context.Context, env []string, deviceID string, args ...string) (string, error) {
	text, err := output(ctx, m.c.Runner, m.command(env, args...))
	return text, m.explain(deviceID, err)
}

func (m *Systemd) command(env []string, args ...string) Command {
	return Command{Argv: append([]string{"systemctl", "--user"}, args...), Env: env}
}

// explain turns the failures that mean "no manager" into that.
func (m *Systemd) explain(deviceID string, err error) error {
	var failed *CommandError
	switch {
	case missing(err):
		return &NoManagerError{Manager: "systemd", Why: "its program systemctl is not there", Err: err, Remedy: elsewhere(deviceID)}
	case errors.Is(err, context.DeadlineExceeded):
		return &NoManagerError{Manager: "systemd", Why: "it did not answer in time", Err: err,
			Remedy: remedy.Step("Look at it", "systemctl --user status")}
	case errors.As(err, &failed) && strings.Contains(failed.Complaint, "Failed to connect to bus"):
		return &NoManagerError{Manager: "systemd", Why: failed.Complaint, Err: err,
			Remedy: fmt.Sprintf("Log in as %s directly (not by su or sudo) and repeat this command.", m.c.User)}
	}
	return err
}

// folders are the places for a user's own units: that of this environment, and
// the one of a manager that was started without it.
func (m *Systemd) folders() []string {
	usual := filepath.Join(m.c.HomeDir, ".config")
	config := m.c.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) || filepath.Clean(config) == usual {
		return []string{filepath.Join(usual, "systemd", "user")}
	}
	return []string{filepath.Join(config, "systemd", "user"), filepath.Join(usual, "systemd", "user")}
}

// file is where a device's unit is, or else where it would go.
func (m *Systemd) file(deviceID string) string {
	folders := m.folders()
	for _, dir := range folders {
		if path := filepath.Join(dir, unitName(deviceID)); exists(path) {
			return path
		}
	}
	return filepath.Join(folders[0], unitName(deviceID))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// newFile is where a unit is to be written: a folder that the manager reads.
func (m *Systemd) newFile(ctx context.Context, env []string, deviceID string) (string, error) {
	if path := m.file(deviceID); exists(path) {
		return path, nil
	}
	reads, err := m.systemctl(ctx, env, deviceID, "show", "--property=UnitPath", "--value")
	if err != nil {
		return "", err
	}
	for _, dir := range m.folders() {
		if slices.Contains(strings.Fields(reads), dir) {
			return filepath.Join(dir, unitName(deviceID)), nil
		}
	}
	return "", &NoManagerError{Manager: "systemd", Why: "it reads units from none of " + strings.Join(m.folders(), ", "),
		Remedy: "Give this shell the XDG_CONFIG_HOME that your login session has."}
}

// Install implements Manager.
func (m *Systemd) Install(ctx context.Context, s Spec, force bool) (*Installed, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	data, err := unit(s)
	if err != nil {
		return nil, err
	}
	env, err := m.reach(s.DeviceID)
	if err != nil {
		return nil, err
	}
	path, err := m.newFile(ctx, env, s.DeviceID)
	if err != nil {
		return nil, err
	}
	done := &Installed{File: path}
	if done.Change, err = place(path, data, force); err != nil {
		return nil, err
	}
	now, err := m.show(ctx, env, s.DeviceID)
	if err != nil {
		return nil, err
	}
	// An earlier install may have written the file and got no further.
	outdated := done.Change != Unchanged || now.outdated
	if outdated {
		if _, err := m.systemctl(ctx, env, s.DeviceID, "daemon-reload"); err != nil {
			return nil, err
		}
	}
	if !now.Enabled {
		if _, err := m.systemctl(ctx, env, s.DeviceID, "--quiet", "enable", unitName(s.DeviceID)); err != nil {
			return nil, err
		}
	}
	done.Notes = m.linger(ctx)
	switch {
	case now.Phase == "inactive" || strings.HasPrefix(now.Phase, "failed"):
		done.Started = true
		err = m.bringUp(ctx, env, s.DeviceID, "start")
	case outdated:
		done.Restarted = true
		err = m.bringUp(ctx, env, s.DeviceID, "restart")
	}
	return done, err
}

// linger has the user's manager live without a session, or says how to.
func (m *Systemd) linger(ctx context.Context) (notes []string) {
	if m.lingering(ctx) {
		return nil
	}
	if _, err := output(ctx, m.c.Runner, Command{Argv: []string{"loginctl", "--no-ask-password", "enable-linger", m.c.User}}); err != nil {
		return []string{remedy.Step("The service ends when you log out, and does not start with the machine. To change that",
			"sudo loginctl enable-linger "+remedy.Quote(m.c.User))}
	}
	return []string{fmt.Sprintf("Switched on lingering for %s, so that the service outlives your sessions.", m.c.User)}
}

func (m *Systemd) lingering(ctx context.Context) bool {
	text, err := output(ctx, m.c.Runner, Command{Argv: []string{"loginctl", "show-user", m.c.User, "--property=Linger", "--value"}})
	return err == nil && text == "yes"
}

// bringUp starts or restarts the unit and waits until the executor is up.
// systemd itself bounds how long that takes.
func (m *Systemd) bringUp(ctx context.Context, env []string, deviceID, verb string) error {
	name := unitName(deviceID)
	// What an earlier failure left is not what this start is about.
	_, _ = m.systemctl(ctx, env, deviceID, "reset-failed", name)
	err := m.c.Runner.Run(ctx, m.command(env, verb, name), io.Discard)
	if err == nil {
		return nil
	}
	var none *NoManagerError
	if err = m.explain(deviceID, err); errors.As(err, &none) {
		return err
	}
	failed := &StartError{DeviceID: deviceID, Service: name, Err: err}
	if state, err := m.show(ctx, env, deviceID); err == nil {
		failed.Exit = state.LastExit
	}
	return failed
}

// Uninstall implements Manager.
func (m *Systemd) Uninstall(ctx context.Context, deviceID string, force bool) (*Removed, error) {
	if err := checkID(deviceID); err != nil {
		return nil, err
	}
	path := m.file(deviceID)
	err := removable(path, deviceID, force)
	var absent *NotInstalledError
	if errors.As(err, &absent) {
		return m.uninstallOrphan(ctx, deviceID, absent)
	}
	if err != nil {
		return nil, err
	}
	env, err := m.reach(deviceID)
	var none *NoManagerError
	if errors.As(err, &none) && none.Never {
		return m.discard(path)
	}
	if err != nil {
		return nil, err
	}
	name := unitName(deviceID)
	if err := m.halt(ctx, env, deviceID); err != nil {
		return nil, err
	}
	if _, err := m.systemctl(ctx, env, deviceID, "--quiet", "disable", name); err != nil {
		return nil, err
	}
	if err := remove(path, m.configFolder(path)); err != nil {
		return nil, err
	}
	if _, err := m.systemctl(ctx, env, deviceID, "daemon-reload"); err != nil {
		return nil, err
	}
	_, _ = m.systemctl(ctx, env, deviceID, "reset-failed", name) // it may be remembered as failed; most are not
	done := &Removed{File: path}
	if m.lingering(ctx) {
		done.Notes = append(done.Notes, remedy.Step(fmt.Sprintf("Lingering stays on for %s, since other services may need it. To switch it off", m.c.User),
			"loginctl disable-linger "+remedy.Quote(m.c.User)))
	}
	if custom := path + ".d"; exists(custom) {
		done.Notes = append(done.Notes, "What you added to the service stays: "+custom)
	}
	return done, nil
}

// discard removes a unit where no systemd runs: nobody else would, and nothing is
// there to be stopped.
func (m *Systemd) discard(path string) (*Removed, error) {
	enabled := filepath.Join(filepath.Dir(path), wantedBy+".wants", filepath.Base(path))
	if exists(enabled) {
		if err := remove(enabled, filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	if err := remove(path, m.configFolder(path)); err != nil {
		return nil, err
	}
	return &Removed{File: path, Notes: []string{
		"This machine is not run by systemd, so there was nothing to stop. Should another machine share this home folder, stop the service there."}}, nil
}

// configFolder is the part of a unit's path that is there without units.
func (*Systemd) configFolder(path string) string {
	return filepath.Dir(filepath.Dir(filepath.Dir(path)))
}

// Start implements Manager.
func (m *Systemd) Start(ctx context.Context, deviceID string) error {
	env, err := m.installed(ctx, deviceID)
	if err != nil {
		return err
	}
	return m.bringUp(ctx, env, deviceID, "start")
}

// Stop implements Manager.
func (m *Systemd) Stop(ctx context.Context, deviceID string) error {
	env, err := m.known(ctx, deviceID)
	if err != nil {
		return err
	}
	return m.halt(ctx, env, deviceID)
}

func (m *Systemd) halt(ctx context.Context, env []string, deviceID string) error {
	return m.explain(deviceID, m.c.Runner.Run(ctx, m.command(env, "stop", unitName(deviceID)), io.Discard))
}

// installed finds the way to the manager for a device that has a unit. Of one
// that has none it says so where it could have one: the advice is to install it.
func (m *Systemd) installed(ctx context.Context, deviceID string) ([]string, error) {
	if err := checkID(deviceID); err != nil {
		return nil, err
	}
	env, err := m.reach(deviceID)
	if err != nil || exists(m.file(deviceID)) {
		return env, err
	}
	path, err := m.newFile(ctx, env, deviceID)
	if err != nil {
		return nil, err
	}
	return nil, &NotInstalledError{DeviceID: deviceID, File: path}
}

// State implements Manager.
func (m *Systemd) State(ctx context.Context, deviceID string) (State, error) {
	if err := checkID(deviceID); err != nil {
		return State{}, err
	}
	path := m.file(deviceID)
	_, what, err := look(path)
	state := State{Manager: "systemd", Service: unitName(deviceID), File: path,
		Installed: what != absent, Edited: what == edited || what == foreign}
	if err != nil {
		return state, err
	}
	env, err := m.reach(deviceID)
	if err != nil {
		return state, err
	}
	if what == absent {
		path, err := m.newFile(ctx, env, deviceID)
		if err != nil {
			return state, err
		}
		state.File = path
	}
	live, err := m.show(ctx, env, deviceID)
	if err != nil {
		return state, err
	}
	if what == absent {
		state.Orphaned = live.active || len(m.danglingLinks(deviceID)) > 0
		if !state.Orphaned {
			return state, nil
		}
		live.Orphaned, live.Enabled = true, false // there is nothing to start by itself
	}
	live.Manager, live.Service, live.File = state.Manager, state.Service, state.File
	live.Installed, live.Edited = state.Installed, state.Edited
	lingers := m.lingering(ctx)
	live.Lingering = &lingers
	return live, nil
}

// How the kernel, and so systemd, numbers the ways a process ends.
const (
	exited = "1"
	killed = "2"
	dumped = "3"
)

// show asks the manager what it knows of a device's unit.
func (m *Systemd) show(ctx context.Context, env []string, deviceID string) (State, error) {
	text, err := m.systemctl(ctx, env, deviceID, "show", unitName(deviceID),
		"--property=UnitFileState,ActiveState,SubState,MainPID,NRestarts,ExecMainCode,ExecMainStatus,StatusText,NeedDaemonReload,LoadState,FragmentPath")
	if err != nil {
		return State{}, err
	}
	value := map[string]string{}
	for line := range strings.Lines(text) {
		name, v, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		value[name] = v
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(value[name]) // absent in old versions: 0
		return n
	}
	state := State{
		Enabled:  value["UnitFileState"] == "enabled",
		Running:  number("MainPID") != 0,
		Phase:    value["ActiveState"],
		PID:      number("MainPID"),
		Restarts: number("NRestarts"),
		Text:     value["StatusText"],
		Masked:   strings.HasPrefix(value["UnitFileState"], "masked") || value["LoadState"] == "masked",
		outdated: value["NeedDaemonReload"] == "yes",
	}
	// A unit of that name from another place is not ours.
	from := value["FragmentPath"]
	state.active = state.Phase != "" && state.Phase != "inactive" && (from == "" || slices.Contains(m.folders(), filepath.Dir(from)))
	if !state.Running {
		state.Text = "" // the last word of one that is gone; systemd keeps it
	}
	// Newer versions have a second state of the kind, auto-restart-queued.
	state.Restarting = !state.Running && strings.HasPrefix(value["SubState"], "auto-restart")
	if sub := value["SubState"]; sub != "" && sub != "dead" && sub != state.Phase {
		state.Phase += " (" + sub + ")"
	}
	switch value["ExecMainCode"] {
	case exited:
		state.LastExit = &Exit{Code: number("ExecMainStatus")}
	case killed, dumped:
		state.LastExit = &Exit{Signal: syscall.Signal(number("ExecMainStatus")).String()}
	}
	return state, nil
}

// Logs implements Manager.
func (m *Systemd) Logs(ctx context.Context, deviceID string, q LogQuery, out io.Writer) error {
	env, err := m.known(ctx, deviceID)
	if err != nil {
		return err
	}
	name := unitName(deviceID)
	argv := []string{"journalctl", "--user", "--unit=" + name, "--lines=" + strconv.Itoa(q.Lines), "--no-pager", "--quiet"}
	if q.Follow {
		argv = append(argv, "--follow")
	}
	seen := &counting{w: out}
	err = m.c.Runner.Run(ctx, Command{Argv: argv, Env: env}, seen)
	if ctx.Err() != nil {
		return nil // the reader has had enough
	}
	if err == nil && seen.n > 0 {
		return nil
	}
	// A machine whose journal lives in memory keeps no user's lines apart, and
	// then shows them to administrators only.
	return &NoLogError{Service: name, Err: err,
		Remedy: remedy.Step("Read them as an administrator", fmt.Sprintf("sudo journalctl _UID=%d _SYSTEMD_USER_UNIT=%s", m.c.UID, name))}
}

// counting knows whether anything was written.
type counting struct {
	w io.Writer
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
