package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// Launchd is the launchd of one user's session at the screen. Agents of other
// sessions (ssh) would come up a second time at the next login, and could not
// reach the keychain.
type Launchd struct {
	c Config
}

// NewLaunchd returns it.
func NewLaunchd(c Config) *Launchd { return &Launchd{c: c} }

// What launchctl ends with where a job or a domain is not there.
const (
	noSuchJob    = 113
	noSuchDomain = 112
	notLoaded    = 3 // bootout's way to say it
)

// jobPause is how often a job that is on its way is looked at.
const jobPause = 100 * time.Millisecond

func (m *Launchd) domain() string { return fmt.Sprintf("gui/%d", m.c.UID) }

func (m *Launchd) target(deviceID string) string { return m.domain() + "/" + agentLabel(deviceID) }

func (m *Launchd) file(deviceID string) string {
	return filepath.Join(m.c.HomeDir, "Library", "LaunchAgents", agentLabel(deviceID)+".plist")
}

// logFile is where the executor of a device logs to.
func (m *Launchd) logFile(deviceID string) string {
	return filepath.Join(m.c.HomeDir, "Library", "Logs", "sema", deviceID+".log")
}

func (m *Launchd) launchctl(ctx context.Context, args ...string) (string, error) {
	text, err := output(ctx, m.c.Runner, Command{Argv: append([]string{"launchctl"}, args...)})
	switch {
	case missing(err):
		err = &NoManagerError{Manager: "launchd", Why: "its program launchctl is not there", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		err = &NoManagerError{Manager: "launchd", Why: "it did not answer in time", Err: err}
	}
	return text, err
}

// reach makes sure that the user has a session that can have agents.
func (m *Launchd) reach(ctx context.Context, deviceID string) error {
	_, err := m.launchctl(ctx, "print", m.domain())
	var failed *CommandError
	if errors.As(err, &failed) {
		return &NoManagerError{Manager: "launchd", Why: m.c.User + " is not logged in at the screen", Err: err,
			Remedy: "Log in there once (automatic login does), then repeat this command.\n" +
				remedy.Step("Or run the executor in this session", remedy.For(deviceID, "serve"))}
	}
	return err
}

// job is what launchd knows of an agent.
type job struct {
	loaded bool
	state  State
}

// look asks launchd about an agent. Its answer is made for people; of it only
// the lines at the first level are taken.
func (m *Launchd) look(ctx context.Context, deviceID string) (job, error) {
	text, err := m.launchctl(ctx, "print", m.target(deviceID))
	var failed *CommandError
	if errors.As(err, &failed) && (failed.Code == noSuchJob || failed.Code == noSuchDomain) {
		return job{}, nil
	}
	if err != nil {
		return job{}, err
	}
	j := job{loaded: true}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(line, "\t"), "\n"), " = ")
		switch name {
		case "state":
			j.state.Phase = value
		case "pid":
			j.state.PID, _ = strconv.Atoi(value)
		case "runs":
			runs, _ := strconv.Atoi(value)
			j.state.Restarts = max(runs-1, 0)
		case "last exit code":
			// "5", "5: Input/output error", or "(never exited)"
			number, _, _ := strings.Cut(value, ":")
			if code, err := strconv.Atoi(number); err == nil && j.state.LastExit == nil {
				j.state.LastExit = &Exit{Code: code}
			}
		case "last terminating signal":
			j.state.LastExit = &Exit{Signal: value}
		}
	}
	j.state.Running = j.state.PID != 0
	j.state.Restarting = !j.state.Running && j.state.Phase == "spawn scheduled"
	return j, nil
}

// await looks at a job until it is as wanted or time is up.
func (m *Launchd) await(ctx context.Context, deviceID string, limit time.Duration, wanted func(job) bool) (job, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(jobPause)
	defer tick.Stop()
	for {
		j, err := m.look(ctx, deviceID)
		if err != nil || wanted(j) {
			return j, err
		}
		select {
		case <-ctx.Done():
			return j, context.Cause(ctx)
		case <-deadline.C:
			return j, fmt.Errorf("%s: launchd still says %q after %s", agentLabel(deviceID), j.state.Phase, limit)
		case <-tick.C:
		}
	}
}

// stopLimit bounds how long a stop is waited for. launchd itself kills after
// the agent's own time, which this is not to get in the way of.
const stopLimit = 15 * time.Minute

// Install implements Manager.
func (m *Launchd) Install(ctx context.Context, s Spec, force bool) (*Installed, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := m.reach(ctx, s.DeviceID); err != nil {
		return nil, err
	}
	path := m.file(s.DeviceID)
	change, err := place(path, agent(s, m.logFile(s.DeviceID)), force)
	if err != nil {
		return nil, err
	}
	done := &Installed{File: path, Change: change, Notes: []string{
		"The service runs while you are logged in at the screen.\nIts log: " + m.logFile(s.DeviceID)}}
	before, err := m.look(ctx, s.DeviceID)
	if err != nil {
		return nil, err
	}
	if before.loaded && change != Unchanged {
		if err := m.unload(ctx, s.DeviceID); err != nil {
			return nil, err
		}
		done.Restarted = before.state.Running
	}
	if before.state.Running && change == Unchanged {
		return done, nil
	}
	done.Started = !done.Restarted
	return done, m.Start(ctx, s.DeviceID)
}

// unload takes an agent out of launchd, which stops it, and waits until it is
// gone: another bootstrap before that fails.
func (m *Launchd) unload(ctx context.Context, deviceID string) error {
	_, err := m.launchctl(ctx, "bootout", m.target(deviceID))
	var failed *CommandError
	if errors.As(err, &failed) {
		// Not loaded is what is wanted; "in progress" is on its way there. Any
		// other failure shows in the job being there still.
		if failed.Code == notLoaded || failed.Code == noSuchJob {
			return nil
		}
	} else if err != nil {
		return err
	}
	_, gone := m.await(ctx, deviceID, stopLimit, func(j job) bool { return !j.loaded })
	if gone != nil {
		return errors.Join(err, gone)
	}
	return nil
}

// Uninstall implements Manager.
func (m *Launchd) Uninstall(ctx context.Context, deviceID string, force bool) (*Removed, error) {
	if err := checkID(deviceID); err != nil {
		return nil, err
	}
	path := m.file(deviceID)
	err := removable(path, deviceID, force)
	var absent *NotInstalledError
	if errors.As(err, &absent) {
		j, look := m.look(ctx, deviceID)
		if look != nil || !j.loaded {
			return nil, err
		}
		if err := m.unload(ctx, deviceID); err != nil {
			return nil, err
		}
		return &Removed{File: path, Notes: []string{orphanGone}}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := m.unload(ctx, deviceID); err != nil {
		return nil, err
	}
	if err := remove(path, filepath.Join(m.c.HomeDir, "Library")); err != nil {
		return nil, err
	}
	done := &Removed{File: path}
	if log := m.logFile(deviceID); exists(log) {
		done.Notes = append(done.Notes, "The executor's log stays: "+log)
	}
	return done, nil
}

const (
	// startLimit is how long an agent has until it must have a process.
	startLimit = 15 * time.Second
	// busyLimit is how long launchd may have its hands full with an agent.
	busyLimit = 5 * time.Second
)

// Start implements Manager. launchd knows nothing of being up; that the process
// is there is all that can be waited for.
func (m *Launchd) Start(ctx context.Context, deviceID string) error {
	if err := m.installed(ctx, deviceID); err != nil {
		return err
	}
	if err := m.reach(ctx, deviceID); err != nil {
		return err
	}
	j, err := m.look(ctx, deviceID)
	if err != nil {
		return err
	}
	if !j.loaded {
		// An agent that was once disabled stays so over reinstallations.
		if _, err := m.launchctl(ctx, "enable", m.target(deviceID)); err != nil {
			return err
		}
		if err := m.load(ctx, deviceID); err != nil {
			return &StartError{DeviceID: deviceID, Service: agentLabel(deviceID), Err: err}
		}
	}
	// Loading it starts it, too, and launchd may refuse a start that is under way: what
	// counts is whether it runs.
	limit := startLimit
	_, kick := m.launchctl(ctx, "kickstart", m.target(deviceID))
	var refused *CommandError
	switch {
	case errors.As(kick, &refused):
		limit = busyLimit
	case kick != nil:
		return &StartError{DeviceID: deviceID, Service: agentLabel(deviceID), Err: kick}
	}
	if j, err = m.await(ctx, deviceID, limit, func(j job) bool { return j.state.Running }); err != nil {
		return &StartError{DeviceID: deviceID, Service: agentLabel(deviceID), Exit: j.state.LastExit, Err: errors.Join(kick, err)}
	}
	return nil
}

// load brings an agent into launchd. What it has just let go it may not take back at
// once, though it says that it is gone; and it may have it in spite of complaining.
func (m *Launchd) load(ctx context.Context, deviceID string) error {
	for deadline := time.Now().Add(busyLimit); ; {
		_, err := m.launchctl(ctx, "bootstrap", m.domain(), m.file(deviceID))
		var refused *CommandError
		if !errors.As(err, &refused) {
			return err
		}
		if j, look := m.look(ctx, deviceID); look == nil && j.loaded {
			return nil
		}
		if !time.Now().Before(deadline) {
			return err
		}
		pause := time.NewTimer(jobPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		case <-pause.C:
		}
	}
}

// Stop implements Manager.
func (m *Launchd) Stop(ctx context.Context, deviceID string) error {
	err := m.installed(ctx, deviceID)
	var absent *NotInstalledError
	if err != nil && !errors.As(err, &absent) {
		return err
	}
	j, looked := m.look(ctx, deviceID)
	switch {
	case looked != nil:
		return looked
	case absent != nil && !j.loaded:
		return absent
	case !j.state.Running:
		return nil
	}
	// An end by TERM is a success, after which launchd leaves the agent alone.
	if _, err := m.launchctl(ctx, "kill", "SIGTERM", m.target(deviceID)); err != nil {
		return err
	}
	_, err = m.await(ctx, deviceID, stopLimit, func(now job) bool { return now.state.PID != j.state.PID })
	return err
}

// installed refuses devices that have no agent. It says so where there could be
// one: the advice is to install it.
func (m *Launchd) installed(ctx context.Context, deviceID string) error {
	if err := checkID(deviceID); err != nil {
		return err
	}
	path := m.file(deviceID)
	if exists(path) {
		return nil
	}
	if err := m.reach(ctx, deviceID); err != nil {
		return err
	}
	return &NotInstalledError{DeviceID: deviceID, File: path}
}

// State implements Manager.
func (m *Launchd) State(ctx context.Context, deviceID string) (State, error) {
	if err := checkID(deviceID); err != nil {
		return State{}, err
	}
	path := m.file(deviceID)
	_, what, err := look(path)
	state := State{Manager: "launchd", Service: agentLabel(deviceID), File: path,
		Installed: what != absent, Edited: what == edited || what == foreign}
	if err != nil {
		return state, err
	}
	if err := m.reach(ctx, deviceID); err != nil {
		return state, err
	}
	j, err := m.look(ctx, deviceID)
	if err != nil || what == absent && !j.loaded {
		return state, err
	}
	j.state.Orphaned = what == absent
	j.state.Manager, j.state.Service, j.state.File = state.Manager, state.Service, state.File
	j.state.Installed, j.state.Edited = state.Installed, state.Edited
	j.state.Enabled = j.loaded && state.Installed
	return j.state, nil
}

// Logs implements Manager.
func (m *Launchd) Logs(ctx context.Context, deviceID string, q LogQuery, out io.Writer) error {
	if err := m.installed(ctx, deviceID); err != nil {
		return err
	}
	log := m.logFile(deviceID)
	if !exists(log) {
		return &NoLogError{Service: agentLabel(deviceID), Remedy: remedy.Step("It has not been started yet", remedy.For(deviceID, "service", "start"))}
	}
	argv := []string{"tail", "-n", strconv.Itoa(q.Lines)}
	if q.Follow {
		argv = append(argv, "-F") // by name: the file is rotated
	}
	err := m.c.Runner.Run(ctx, Command{Argv: append(argv, log)}, out)
	if ctx.Err() != nil {
		return nil // the reader has had enough
	}
	return err
}
