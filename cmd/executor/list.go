package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
)

// listedDevice is one row of `list --json`.
type listedDevice struct {
	DeviceID      string     `json:"deviceId"`
	Name          string     `json:"name,omitempty"`
	Server        string     `json:"server,omitempty"`
	WorkspaceRoot string     `json:"workspaceRoot,omitempty"`
	KeyStore      string     `json:"keyStore,omitempty"`
	PublicKey     string     `json:"publicKey,omitempty"`
	EnrolledAt    *time.Time `json:"enrolledAt,omitempty"`
	Revoked       bool       `json:"revoked,omitempty"`
	Running       bool       `json:"running"`
	PID           int        `json:"pid,omitempty"`
	Problem       string     `json:"problem,omitempty"`
}

func newList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the devices enrolled on this machine",
		Example: "  sema device list\n  sema device list --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			home, err := enroll.OpenHome(a.getenv)
			if err != nil {
				return err
			}
			devices, err := listDevices(home)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(devices)
			}
			return a.printDevices(home, devices)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return c
}

// listDevices reads every record; one that cannot be read is a row with a
// problem, not a failure.
func listDevices(home *enroll.Home) ([]listedDevice, error) {
	sound, broken, err := home.Records()
	if err != nil {
		return nil, err
	}
	devices := []listedDevice{}
	for _, r := range sound {
		d := listedDevice{
			DeviceID:      r.DeviceID,
			Name:          r.Name,
			Server:        r.Server.String(),
			WorkspaceRoot: r.WorkspaceRoot,
			KeyStore:      r.KeyStore,
			PublicKey:     r.PublicKey.String(),
			EnrolledAt:    &r.EnrolledAt,
			Revoked:       r.Revoked(),
		}
		d.Running, d.PID = holder(r.Dir())
		devices = append(devices, d)
	}
	for _, b := range broken {
		devices = append(devices, listedDevice{DeviceID: b.DeviceID, Problem: explain(b)})
	}
	return devices, nil
}

func (a *app) printDevices(home *enroll.Home, devices []listedDevice) error {
	if len(devices) == 0 {
		_, err := fmt.Fprintf(a.stderr, "No device is enrolled in %s.\nEnroll this machine: sema device enroll --server URL\n", home.Dir())
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DEVICE\tNAME\tSTATE")
	for _, d := range devices {
		state := "stopped"
		switch {
		case d.Problem != "":
			state = "unreadable record"
		case d.Revoked:
			state = "revoked"
		case d.Running:
			state = fmt.Sprintf("running (pid %d)", d.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.DeviceID, d.Name, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, d := range devices {
		if d.Problem != "" {
			fmt.Fprintf(a.stderr, "%s\n", d.Problem)
		}
	}
	return nil
}
