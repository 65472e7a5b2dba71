package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/service"
)

// serviceHost is what services need of a machine, so that tests can give
// another one.
type serviceHost struct {
	manager func() (service.Manager, error)
	program func() (path string, notes []string, err error) // what a service is to run
}

func newService(a *app) *cobra.Command {
	return newServiceOf(a, serviceHost{
		manager: func() (service.Manager, error) { return service.Here(a.getenv) },
		program: func() (string, []string, error) {
			running, err := os.Executable()
			if err != nil {
				return "", nil, fmt.Errorf("find this program's path: %w", err)
			}
			return service.StableBinary(os.Args[0], running)
		},
	})
}

func newServiceOf(a *app, host serviceHost) *cobra.Command {
	c := &cobra.Command{
		Use:   "service",
		Short: "Keep the executor running in the background",
		Long: `Keep the executor of a device running in the background: as a systemd user
unit on Linux, as a LaunchAgent on macOS. Each device has a service of its own.

It is started again ten seconds after it crashed or could not read its key, and
not after an end that is final: stopped as asked, revoked, superseded, held by
another executor, too old for the server.`,
		Example: "  sema device service install\n  sema device service logs --follow",
		Args:    noArgs,
		RunE:    showHelp,
	}
	c.AddCommand(
		newServiceInstall(a, host),
		newServiceUninstall(a, host),
		newServiceStart(a, host),
		newServiceStop(a, host),
		newServiceStatus(a, host),
		newServiceLogs(a, host),
	)
	return c
}

const deviceFlagHelp = "the device, where more than one is enrolled"

// serviceDevice says which device's service a command is about. One that is
// named needs no record: its service may be what is left of it.
func (a *app) serviceDevice(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	_, record, err := a.chosen("")
	if err != nil {
		return "", err
	}
	return record.DeviceID, nil
}

// notHeldElsewhere refuses to start a service for a device that an executor
// outside that service has in hand: it would end at once.
func notHeldElsewhere(record *enroll.Record, now service.State) error {
	running, pid := holder(record.Dir())
	if !running || now.Running {
		return nil
	}
	return exitWith(exitHeld, fmt.Errorf("%s is being served by process %d, outside of the service.\nStop that one first, then repeat this command", record.DeviceID, pid))
}

// notRevoked refuses to start a service that could only end.
func notRevoked(record *enroll.Record) error {
	if !record.Revoked() {
		return nil
	}
	return exitWith(exitRevoked, fmt.Errorf("%s was revoked: its key is gone.\nEnroll again: sema device enroll --server %s", record.DeviceID, record.Server))
}

// startable looks at what would keep a service from staying up, where there is
// a record to look at.
func (a *app) startable(c *cobra.Command, m service.Manager, deviceID string) error {
	_, record, err := a.chosen(deviceID)
	if err != nil {
		var none *enroll.NoDeviceError
		if errors.As(err, &none) {
			return nil // the manager says whether there is such a service
		}
		return err
	}
	if err := notRevoked(record); err != nil {
		return err
	}
	state, err := m.State(c.Context(), deviceID)
	if err != nil {
		return err
	}
	return notHeldElsewhere(record, state)
}

func (a *app) note(lines ...string) {
	for _, line := range lines {
		fmt.Fprintln(a.stderr, foldAll("Note: "+line, "", columns))
	}
}
