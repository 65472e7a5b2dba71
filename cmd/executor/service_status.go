package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/service"
)

func newServiceStatus(a *app, host serviceHost) *cobra.Command {
	var device string
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "What the service manager knows of a device's service",
		Long: `What the service manager knows of a device's service: whether it is installed,
starts by itself, runs, and how it ended. What the executor itself is doing:
sema device status.`,
		Example: "  sema device service status --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			id, err := a.serviceDevice(device)
			if err != nil {
				return err
			}
			manager, err := host.manager()
			if err != nil {
				return err
			}
			state, err := manager.State(c.Context(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(state)
			}
			_, err = a.stdout.Write(renderService(id, state))
			return err
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return c
}

func renderService(deviceID string, s service.State) []byte {
	var b bytes.Buffer
	row := func(name, format string, args ...any) {
		const indent = "           "
		fmt.Fprintf(&b, "%-10s %s\n", name, foldAll(fmt.Sprintf(format, args...), indent, columns-len(indent)))
	}
	row("device", "%s", deviceID)
	if !s.Installed {
		row("service", "not installed")
		row("", "Install it: sema device service install")
		return b.Bytes()
	}
	row("service", "%s (%s)", s.Service, s.Manager)
	row("file", "%s", s.File)
	if s.Edited {
		row("", "edited since it was installed; --force replaces or removes it")
	}
	switch {
	case s.PID != 0 && s.Restarts > 0:
		row("state", "%s, pid %d, started again %s", s.Phase, s.PID, times(s.Restarts))
	case s.PID != 0:
		row("state", "%s, pid %d", s.Phase, s.PID)
	default:
		row("state", "%s", s.Phase)
	}
	if s.Text != "" {
		row("executor", "%s", s.Text)
	}
	if s.LastExit != nil {
		row("last end", "%s", s.LastExit)
		if !s.Running {
			row("", "Its last words: sema device service logs")
		}
	}
	switch {
	case !s.Enabled:
		row("starts", "when told to: sema device service start")
	case s.Lingering != nil && *s.Lingering:
		row("starts", "by itself, with the machine")
	default:
		row("starts", "by itself, when you log in")
	}
	if s.Enabled && s.Lingering != nil && !*s.Lingering {
		row("", "It ends with your last session. To change that:")
		row("", "sudo loginctl enable-linger $USER")
	}
	return b.Bytes()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
