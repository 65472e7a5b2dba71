package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newUnenroll(a *app) *cobra.Command {
	var device string
	var yes bool
	c := &cobra.Command{
		Use:   "unenroll",
		Short: "Delete this machine's key and record of a device",
		Long: `Delete the private key and the record of a device from this machine.

The server is not told: it keeps the device, offline for good, until the
account's owner revokes it there. Enrolling again makes a new device.`,
		Example: "  sema device unenroll --device dev_01J8ZQ4T9X0000000000000000 --yes",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			home, record, err := a.chosen(device)
			if err != nil {
				return err
			}
			if running, pid := holder(record.Dir()); running {
				return exitWith(exitHeld, fmt.Errorf("%s is being served by process %d.\nStop it first: sema device service stop (or end that process), then unenroll", record.DeviceID, pid))
			}
			if !yes {
				if err := a.confirm(fmt.Sprintf("Delete the key and the record of %s (%s)?", record.DeviceID, record.Server)); err != nil {
					return err
				}
			}
			if err := home.Unenroll(c.Context(), record, a.stores()); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "%s is no longer enrolled on this machine.\n", record.DeviceID)
			a.remindOfService(c.Context(), record.DeviceID)
			return nil
		},
	}
	c.Flags().StringVar(&device, "device", "", "the device, where more than one is enrolled")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// serviceLookLimit is how long the service manager may take to say what it has.
const serviceLookLimit = 3 * time.Second

// remindOfService says how to remove the service of a device that is gone. A
// service manager that cannot be asked is no reason to fail: the device is gone.
func (a *app) remindOfService(ctx context.Context, deviceID string) {
	ctx, cancel := context.WithTimeout(ctx, serviceLookLimit)
	defer cancel()
	if state, _ := a.serviceState(ctx, deviceID); state.Installed {
		fmt.Fprintf(a.stderr, "Its background service is still installed. Remove it:\n  sema device service uninstall \\\n    --device %s\n", deviceID)
	}
}

var errNotConfirmed = errors.New("nothing was changed: not confirmed")

// confirm asks a question whose only yes is the word itself.
func (a *app) confirm(question string) error {
	fmt.Fprint(a.stderr, foldAll(question+" [y/N]", "", columns-1)+" ")
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(a.stderr)
		return exitWith(exitUsage, fmt.Errorf("%w.\nWhere nobody can answer, say --yes", errNotConfirmed))
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return exitWith(exitUnexpected, errNotConfirmed)
}
