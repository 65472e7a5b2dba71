package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/remedy"
)

func newUnenroll(a *app) *cobra.Command {
	var device string
	var yes, keepKey bool
	var asJSON bool
	c := &cobra.Command{
		Use:   "unenroll",
		Short: "Delete this machine's key and record of a device",
		Long: `Delete the private key and the record of a device from this machine.

The server is not told: it keeps the device, offline for good, until the
account's owner revokes it there. Enrolling again makes a new device.

Where the key's keychain is gone for good, the key cannot be deleted and the
record stays. With --keep-key the record goes all the same, and the key stays
where it is; revoke the device at the server then.`,
		Example: "  sema device unenroll\n  sema device unenroll --yes --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			home, record, err := a.chosen(device)
			if err != nil {
				return err
			}
			if h := held(record.Dir()); h != nil {
				how := h.Step("End that process first, then unenroll")
				if state, _ := a.serviceBeside(c.Context(), record.DeviceID); state.Running {
					how = remedy.Step("Stop its service first, then unenroll", remedy.For(a.named(record.DeviceID), "service", "stop"))
				}
				return exitWith(exitHeld, fmt.Errorf("%s is being served by %s.\n%s", record.DeviceID, h, how))
			}
			if !yes {
				what := "the key and the record"
				if keepKey && record.KeyStore == enroll.StoreKeychain {
					what = "the record, but not the key,"
				}
				if err := a.confirm(fmt.Sprintf("Delete %s of %s (%s)?", what, record.DeviceID, record.Server)); err != nil {
					return err
				}
			}
			if keepKey {
				err = home.Forget(c.Context(), record)
			} else {
				err = home.Unenroll(c.Context(), record, a.stores())
			}
			if key := (*enroll.KeyError)(nil); errors.As(err, &key) && key.Store == enroll.StoreKeychain && key.Trouble != enroll.KeyBusy {
				return fmt.Errorf("%w\n%s", err, remedy.Step("If that keychain is gone for good, forget the device and revoke it at the server",
					remedy.For(a.named(record.DeviceID), "unenroll", "--keep-key")))
			}
			if err != nil {
				return err
			}
			left, _ := a.serviceBeside(c.Context(), record.DeviceID) // the device is gone in any case
			left.Installed = left.Installed || left.Orphaned
			err = a.done(asJSON, unenrolledDevice{record.DeviceID, record.Server.String(), left.Installed},
				"%s is no longer enrolled on this machine.", record.DeviceID)
			if left.Installed {
				fmt.Fprintln(a.stderr, foldAll(remedy.Step("Its background service is still installed. Remove it",
					remedy.For(record.DeviceID, "service", "uninstall")), "", columns))
			}
			return err
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&keepKey, "keep-key", false, "leave a key that is in a keychain there")
	jsonFlag(c, &asJSON)
	return c
}

// unenrolledDevice is what `unenroll --json` prints.
type unenrolledDevice struct {
	DeviceID         string `json:"deviceId"`
	Server           string `json:"server"`
	ServiceInstalled bool   `json:"serviceInstalled"` // it is left, and can be uninstalled
}

var errNotConfirmed = errors.New("nothing was changed: not confirmed")

// confirm asks a question whose only yes is the word itself.
func (a *app) confirm(question string) error {
	fmt.Fprint(a.stderr, foldAll(question+" [y/N]", "", columns-1)+" ")
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if !isTyped(a.stdin) || answer == "" {
		fmt.Fprintln(a.stderr)
	}
	if err != nil && answer == "" {
		return exitWith(exitUsage, fmt.Errorf("%w.\nWhere nobody can answer, say --yes", errNotConfirmed))
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return exitWith(exitUnexpected, errNotConfirmed)
}
