package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/service"
)

// serviceHost is what services need of a machine. Without its members, it is this
// machine.
type serviceHost struct {
	manager func() (service.Manager, error)
	program func() (path string, notes []string, err error) // what a service is to run
}

func (a *app) manager() (service.Manager, error) {
	if a.services.manager != nil {
		return a.services.manager()
	}
	return service.Here(a.getenv)
}

func (a *app) program() (path string, notes []string, err error) {
	if a.services.program != nil {
		return a.services.program()
	}
	running, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("find this program's path: %w", err)
	}
	return service.StableBinary(os.Args[0], running)
}

func newService(a *app) *cobra.Command {
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
		newServiceInstall(a),
		newServiceUninstall(a),
		newServiceStart(a),
		newServiceStop(a),
		newServiceStatus(a),
		newServiceLogs(a),
	)
	return c
}

const deviceFlagHelp = "the `ID` of the device, where more than one is enrolled"

// aboutService completes a command about the service of one device, which do
// carries out. A device that is named needs no record: its service may be what
// is left of it.
func (a *app) aboutService(c *cobra.Command, do func(ctx context.Context, m service.Manager, deviceID string) error) *cobra.Command {
	device := c.Flags().String("device", "", deviceFlagHelp)
	c.Args = noArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		id := *device
		if id == "" {
			_, record, err := a.chosen("")
			if err != nil {
				return err
			}
			id = record.DeviceID
		}
		manager, err := a.manager()
		if err != nil {
			return err
		}
		err = do(c.Context(), manager, id)
		var absent *service.NotInstalledError
		var none *service.NoManagerError
		if errors.As(err, &absent) || errors.As(err, &none) {
			if unknown := a.nothingLeft(c.Context(), manager, id); unknown != nil {
				return unknown
			}
		}
		return err
	}
	return c
}

// nothingLeft reports that a device has neither a record nor a service here: then
// it is the name that is wrong.
func (a *app) nothingLeft(ctx context.Context, m service.Manager, deviceID string) error {
	_, _, err := a.chosen(deviceID)
	var none *enroll.NoDeviceError
	if !errors.As(err, &none) {
		return nil
	}
	if state, _ := m.State(ctx, deviceID); state.Installed || state.Orphaned { // which the file alone tells
		return nil
	}
	return none
}

// serviceLookLimit is how long the service manager may take to say what it has,
// where that is beside the point.
const serviceLookLimit = 3 * time.Second

// serviceBeside is what the service manager knows of a device, for commands that
// are about something else. Beside an error there is what the file alone tells.
func (a *app) serviceBeside(ctx context.Context, deviceID string) (service.State, error) {
	ctx, cancel := context.WithTimeout(ctx, serviceLookLimit)
	defer cancel()
	manager, err := a.manager()
	if err != nil {
		return service.State{}, err
	}
	return manager.State(ctx, deviceID)
}

// barred is why a device without a service can have none on this machine, for
// which the error tells what to do instead; nil: it can have one, or has it.
func barred(s service.State, err error) error {
	var none *service.NoManagerError
	if s.Installed || !errors.As(err, &none) {
		return nil
	}
	return none
}

// serviceDevice is what the commands that change a service say of it in JSON.
type serviceDevice struct {
	DeviceID string `json:"deviceId"`
	Running  bool   `json:"running"`
}

// notHeldElsewhere refuses to start a service for a device that an executor
// outside that service has in hand: it would end at once.
func notHeldElsewhere(record *enroll.Record, now service.State) error {
	h := held(record.Dir())
	if h == nil || now.Running {
		return nil
	}
	return exitWith(exitHeld, fmt.Errorf("%s is being served by %s, outside of the service.\n%s", record.DeviceID, h,
		h.Step("Stop that one first, then repeat this command")))
}

// notRevoked refuses to start a service that could only end.
func (a *app) notRevoked(ctx context.Context, record *enroll.Record) error {
	if !record.Revoked() {
		return nil
	}
	return exitWith(exitRevoked, &enroll.RevokedError{Record: record, Key: a.stores().Left(ctx, record)})
}

// startable looks at what would keep a service from staying up, where there is
// a record to look at.
func (a *app) startable(ctx context.Context, m service.Manager, deviceID string) error {
	_, record, err := a.chosen(deviceID)
	if err != nil {
		var none *enroll.NoDeviceError
		if errors.As(err, &none) {
			return nil // the manager says whether there is such a service
		}
		return err
	}
	if err := a.notRevoked(ctx, record); err != nil {
		return err
	}
	state, err := m.State(ctx, deviceID)
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
