package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/service"
)

// serviceStatus is what `service status --json` prints.
type serviceStatus struct {
	DeviceID string `json:"deviceId"`
	service.State
	Problem string `json:"problem,omitempty"` // why there can be no service here
}

func newServiceStatus(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "What the service manager knows of a device's service",
		Long: `What the service manager knows of a device's service: whether it is installed,
starts by itself, runs, and how it ended. What the executor itself is doing:
sema device status.`,
		Example: "  sema device service status --json",
	}
	var asJSON bool
	jsonFlag(c, &asJSON)
	return a.aboutService(c, func(ctx context.Context, m service.Manager, id string) error {
		state, err := m.State(ctx, id)
		none := barred(state, err)
		if err != nil && none == nil {
			return err
		}
		if unknown := a.nothingLeft(ctx, m, id); unknown != nil {
			return unknown
		}
		if asJSON {
			status := serviceStatus{DeviceID: id, State: state}
			if none != nil {
				status.Problem = none.Error()
			}
			return json.NewEncoder(a.stdout).Encode(status)
		}
		why := ""
		if none != nil {
			why = a.shortened(explain(none))
		}
		_, err = a.stdout.Write(renderService(id, a.named(id), state, why))
		return err
	})
}

// renderService shows a service to a person; named is how commands name its
// device, barred why it can have no service.
func renderService(deviceID, named string, s service.State, barred string) []byte {
	var t table
	advise := func(what string, words ...string) {
		t.row("", "%s", remedy.Step(what, remedy.For(named, words...)))
	}
	t.row("device", "%s", deviceID)
	if s.Orphaned {
		does := "its file is gone, and " + s.Manager + " still has it"
		if s.PID != 0 {
			does += fmt.Sprintf(": %s, pid %d", s.Phase, s.PID)
		}
		t.row("service", "%s: %s", s.Service, does)
		t.row("file", "%s (removed)", s.File)
		advise("Stop it and remove what is left", "service", "uninstall")
		advise("Or put its file back", "service", "install")
		return t.Bytes()
	}
	if !s.Installed {
		t.row("service", "not installed")
		if barred != "" {
			t.row("", "%s", barred)
			return t.Bytes()
		}
		advise("Install it", "service", "install")
		return t.Bytes()
	}
	t.row("service", "%s (%s)", s.Service, s.Manager)
	t.row("file", "%s", s.File)
	if s.Edited && !s.Masked {
		t.row("", "edited since it was installed; --force replaces or removes it")
	}
	switch {
	case s.PID != 0 && s.Restarts > 0:
		t.row("state", "%s, pid %d, started again %s", s.Phase, s.PID, times(s.Restarts))
	case s.PID != 0:
		t.row("state", "%s, pid %d", s.Phase, s.PID)
	default:
		t.row("state", "%s", s.Phase)
	}
	if s.Restarting {
		t.row("", "It ended, and is started again by itself in a moment.")
	}
	if s.Text != "" {
		t.row("executor", "%s", s.Text)
	}
	if s.LastExit != nil {
		t.row("last end", "%s", s.LastExit)
		if !s.Running {
			advise("Its last words", "service", "logs")
		}
	}
	switch {
	case s.Masked:
		t.row("starts", "never: it is masked")
		t.row("", "%s", remedy.Step("Lift that", remedy.Unmask(s.Service)))
		advise("And install it again", "service", "install")
	case !s.Enabled:
		t.row("starts", "when told to")
		if !s.Running {
			advise("Start it", "service", "start")
		}
	case s.Lingering != nil && *s.Lingering:
		t.row("starts", "by itself, with the machine")
	default:
		t.row("starts", "by itself, when you log in")
	}
	if s.Enabled && s.Lingering != nil && !*s.Lingering {
		t.row("", "%s", remedy.Step("It ends with your last session. To change that", "sudo loginctl enable-linger $USER"))
	}
	return t.Bytes()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
