package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
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
	leftKey
}

func newList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the devices enrolled on this machine",
		Example: "  sema device list\n  sema device list --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := enroll.OpenHome(a.getenv)
			if err != nil {
				return err
			}
			devices, err := a.listDevices(c.Context(), home)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(devices)
			}
			return a.printDevices(home, devices)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// listDevices reads every record; one that cannot be read is a row with a
// problem, not a failure.
func (a *app) listDevices(ctx context.Context, home *enroll.Home) ([]listedDevice, error) {
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
			leftKey:       a.keyLeftOf(ctx, r),
		}
		if h := held(r.Dir()); h != nil {
			d.Running, d.PID = true, h.PID
		}
		devices = append(devices, d)
	}
	for _, b := range broken {
		devices = append(devices, listedDevice{DeviceID: b.DeviceID, Problem: explain(b)})
	}
	return devices, nil
}

func (a *app) printDevices(home *enroll.Home, devices []listedDevice) error {
	if len(devices) == 0 {
		none := &enroll.NoDeviceError{Home: home.Dir()}
		_, err := fmt.Fprintf(a.stderr, "%s\n%s\n", foldAll(fmt.Sprintf("No device is enrolled in %s.", shown(home.Dir())), "", columns), none.Advice())
		return err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-30s  %-19s  %s\n", "DEVICE", "STATE", "NAME")
	for _, d := range devices {
		state := "stopped"
		switch {
		case d.Problem != "":
			state = "unreadable record"
		case d.Revoked:
			state = "revoked"
		case d.Running && d.PID == 0:
			state = "running"
		case d.Running:
			state = fmt.Sprintf("running (pid %d)", d.PID)
		}
		row := fmt.Sprintf("%-30s  %-19s  %s", shown(d.DeviceID), state, shown(d.Name))
		fmt.Fprintln(&out, foldAll(strings.TrimRight(row, " "), "  ", columns-2))
		switch {
		case d.Problem != "":
		case d.Revoked:
			fmt.Fprintf(&out, "  %s\n", foldAll("was at "+d.Server+" for "+shown(d.WorkspaceRoot), "  ", columns-2))
			if advice := d.remains.Advice(a.named(d.DeviceID)); advice != "" {
				fmt.Fprintf(&out, "  %s\n  %s\n", foldAll(d.remains.String()+".", "  ", columns-2), foldAll(advice, "  ", columns-2))
			}
		default:
			about := fmt.Sprintf("at %s for %s, key: %s", d.Server, shown(d.WorkspaceRoot), d.KeyStore)
			fmt.Fprintf(&out, "  %s\n", foldAll(about, "  ", columns-2))
		}
	}
	if _, err := io.WriteString(a.stdout, out.String()); err != nil {
		return err
	}
	for _, d := range devices {
		if d.Problem != "" {
			fmt.Fprintln(a.stderr, foldAll(d.Problem, "", columns))
		}
	}
	return nil
}
