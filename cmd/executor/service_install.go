package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/loginenv"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/service"
)

type serviceInstallFlags struct {
	serve serveFlags
	force bool
	json  bool
}

// installedService is what `service install --json` prints.
type installedService struct {
	DeviceID  string         `json:"deviceId"`
	File      string         `json:"file"`
	Change    service.Change `json:"change"`
	Started   bool           `json:"started"`
	Restarted bool           `json:"restarted"`
}

// removedService is what `service uninstall --json` prints.
type removedService struct {
	DeviceID string `json:"deviceId"`
	File     string `json:"file"`
}

func newServiceInstall(a *app) *cobra.Command {
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
			return a.serviceInstall(c.Context(), f)
		},
	}
	flags := c.Flags()
	f.serve.declare(flags)
	flags.BoolVar(&f.force, "force", false, "replace a service file that was edited")
	jsonFlag(c, &f.json)
	return c
}

func (a *app) serviceInstall(ctx context.Context, f serviceInstallFlags) error {
	home, record, err := a.chosen(f.serve.device)
	if err != nil {
		return err
	}
	if err := a.notRevoked(ctx, record); err != nil {
		return err
	}
	spec, notes, err := a.serviceSpec(ctx, home, record, f.serve)
	if err != nil {
		return err
	}
	manager, err := a.manager()
	if err != nil {
		return err
	}
	before, err := manager.State(ctx, record.DeviceID)
	if err != nil {
		return err
	}
	if err := notHeldElsewhere(record, before); err != nil {
		return err
	}
	waiting := newProgress(a, "Waiting for the executor")
	done, err := manager.Install(ctx, spec, f.force)
	waiting.stop()
	if done != nil {
		a.note(append(notes, done.Notes...)...)
	}
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(a.stdout).Encode(installedService{record.DeviceID, done.File, done.Change, done.Started, done.Restarted})
	}
	return a.printInstalled(record.DeviceID, done)
}

// serviceSpec puts together what the service is to run.
func (a *app) serviceSpec(ctx context.Context, home *enroll.Home, record *enroll.Record, f serveFlags) (service.Spec, []string, error) {
	options, err := f.options()
	if err != nil {
		return service.Spec{}, nil, err
	}
	if err := f.shellThere(ctx); err != nil {
		return service.Spec{}, nil, err
	}
	binary, notes, err := a.program()
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

// shellThere makes sure that the service will find its shell, which serve would end
// for want of: a service that runs must not be changed for that. One that is named
// without a path is looked for as the service will do it.
func (f serveFlags) shellThere(ctx context.Context) error {
	if f.shell == "" {
		return nil
	}
	mode := loginenv.Mode(f.env)
	if mode == loginenv.Auto {
		mode = loginenv.Login // what auto is below a service manager
	}
	env := instructions.WithoutSecrets(os.Environ())
	if !strings.ContainsRune(f.shell, filepath.Separator) {
		env = loginenv.Resolve(ctx, loginenv.Config{Mode: mode, Inherited: env, Log: slog.New(slog.DiscardHandler)})
	}
	if _, err := instructions.FindShell(f.shell, env); err != nil {
		return exitWith(exitUsage, err)
	}
	return nil
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
		return nil, usagef("--drain-timeout: %s is negative; give a time like 10s", f.drain)
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
	about := a.named(deviceID)
	next := remedy.Step("How it does", remedy.For(about, "service", "status")) + "\n" +
		remedy.Step("Its log", remedy.For(about, "service", "logs", "--follow"))
	_, err := fmt.Fprintf(a.stdout, "%s\n  %s\n%s\n%s\n", what, foldAll(done.File+named, "  ", columns-2), does, foldAll(next, "", columns))
	return err
}

func newServiceUninstall(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service of a device and remove it",
		Long: `Stop the service of a device, after its running commands had time to finish, and
remove what 'install' wrote. The device stays enrolled.`,
		Example: "  sema device service uninstall",
	}
	var asJSON bool
	jsonFlag(c, &asJSON)
	force := c.Flags().Bool("force", false, "remove a service file that was edited, too")
	return a.aboutService(c, func(ctx context.Context, m service.Manager, id string) error {
		waiting := newProgress(a, "Waiting for running commands to finish")
		done, err := m.Uninstall(ctx, id, *force)
		waiting.stop()
		if err != nil {
			return err
		}
		a.note(done.Notes...)
		return a.done(asJSON, removedService{id, done.File}, "Removed the service of %s:\n%s", id, done.File)
	})
}
