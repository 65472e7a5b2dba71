package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/loginenv"
	"github.com/sema-agent/device-executor/service"
)

type serviceInstallFlags struct {
	serve serveFlags
	force bool
}

func newServiceInstall(a *app, host serviceHost) *cobra.Command {
	var f serviceInstallFlags
	c := &cobra.Command{
		Use:   "install",
		Short: "Install the service of a device and start it",
		Long: `Install the service of a device, have it start by itself from now on, and start
it. The flags are those of 'sema device serve' and become part of the service.
Installing again with the same flags changes nothing; with others, the service
is replaced and started again, after its running commands had time to finish.

On Linux the service outlives your sessions if lingering can be switched on;
otherwise the command that does it is printed.

Proxy variables and SSL_CERT_FILE are taken over as they are now, unless they
hold a password.`,
		Example: "  sema device service install --allow-root ~/code",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.serviceInstall(c, host, f)
		},
	}
	flags := c.Flags()
	f.serve.declare(flags)
	flags.BoolVar(&f.force, "force", false, "replace a service file that was edited")
	return c
}

func (a *app) serviceInstall(c *cobra.Command, host serviceHost, f serviceInstallFlags) error {
	home, record, err := a.chosen(f.serve.device)
	if err != nil {
		return err
	}
	if err := notRevoked(record); err != nil {
		return err
	}
	spec, notes, err := a.serviceSpec(host, home, record, f.serve)
	if err != nil {
		return err
	}
	manager, err := host.manager()
	if err != nil {
		return err
	}
	before, err := manager.State(c.Context(), record.DeviceID)
	if err != nil {
		return err
	}
	if err := notHeldElsewhere(record, before); err != nil {
		return err
	}
	waiting := newProgress(a, "Waiting for the executor")
	done, err := manager.Install(c.Context(), spec, f.force)
	waiting.stop()
	if done != nil {
		a.note(append(notes, done.Notes...)...)
	}
	if err != nil {
		return err
	}
	return a.printInstalled(record.DeviceID, done)
}

// serviceSpec puts together what the service is to run.
func (a *app) serviceSpec(host serviceHost, home *enroll.Home, record *enroll.Record, f serveFlags) (service.Spec, []string, error) {
	options, err := f.options()
	if err != nil {
		return service.Spec{}, nil, err
	}
	binary, notes, err := host.program()
	if err != nil {
		return service.Spec{}, nil, err
	}
	environment, more := service.CarriedEnvironment(a.getenv)
	return service.Spec{
		DeviceID:     record.DeviceID,
		Binary:       binary,
		Home:         home.Dir(),
		Options:      options,
		Environment:  environment,
		DrainTimeout: f.drain,
	}, append(notes, more...), nil
}

// options writes flags of serve as arguments that mean the same wherever the
// service is started. What has its default is left out, so that the service gets
// the default of whichever version it runs.
func (f serveFlags) options() ([]string, error) {
	if _, err := loginenv.ParseMode(f.env); err != nil {
		return nil, exitWith(exitUsage, fmt.Errorf("--env: %w", err))
	}
	if _, err := newLogger(nil, f.logFormat, f.logLevel); err != nil {
		return nil, err
	}
	if f.drain < 0 {
		return nil, usagef("--drain-timeout: %s is negative", f.drain)
	}
	options := []string{"--env", f.env}
	if f.drain != defaultDrain {
		options = append(options, "--drain-timeout", f.drain.String())
	}
	if f.logFormat != defaultLogFormat {
		options = append(options, "--log-format", f.logFormat)
	}
	if f.logLevel != defaultLogLevel {
		options = append(options, "--log-level", f.logLevel)
	}
	if f.shell != "" {
		shell := f.shell
		if strings.ContainsRune(shell, filepath.Separator) {
			absolute, err := filepath.Abs(shell)
			if err != nil {
				return nil, exitWith(exitUsage, fmt.Errorf("--shell: %w", err))
			}
			shell = absolute
		}
		options = append(options, "--shell", shell)
	}
	for _, root := range f.allowRoots {
		absolute, err := absoluteFolder(root)
		if err != nil {
			return nil, exitWith(exitUsage, fmt.Errorf("--allow-root: %w", err))
		}
		options = append(options, "--allow-root", absolute)
	}
	if f.logCommands {
		options = append(options, "--log-commands")
	}
	return options, nil
}

func (a *app) printInstalled(deviceID string, done *service.Installed) error {
	what := map[service.Change]string{
		service.Created:   "Installed the service of " + deviceID + ":",
		service.Replaced:  "Replaced the service of " + deviceID + ":",
		service.Unchanged: "The service of " + deviceID + " was installed already:",
	}[done.Change]
	does := "It goes on running."
	switch {
	case done.Started:
		does = "It is running now, and starts by itself from now on."
	case done.Restarted:
		does = "It was started again, with the new settings."
	}
	named := ""
	if runtime.GOOS == "darwin" {
		named = " (it also shows under Login Items in the system settings)"
	}
	_, err := fmt.Fprintf(a.stdout, `%s
  %s
%s
  how it does   sema device service status
  its log       sema device service logs --follow
`, what, foldAll(done.File+named, "  ", columns-2), does)
	return err
}

func newServiceUninstall(a *app, host serviceHost) *cobra.Command {
	var device string
	var force bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service of a device and remove it",
		Long: `Stop the service of a device, after its running commands had time to finish, and
remove what 'install' wrote. The device stays enrolled.`,
		Example: "  sema device service uninstall",
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
			waiting := newProgress(a, "Waiting for running commands to finish")
			done, err := manager.Uninstall(c.Context(), id, force)
			waiting.stop()
			if err != nil {
				return err
			}
			a.note(done.Notes...)
			fmt.Fprintf(a.stderr, "Removed the service of %s:\n  %s\n", id, foldAll(done.File, "  ", columns-2))
			return nil
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	c.Flags().BoolVar(&force, "force", false, "remove a service file that was edited, too")
	return c
}
