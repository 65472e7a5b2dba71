package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/holder"
	"github.com/sema-agent/device-executor/internal/logind"
	"github.com/sema-agent/device-executor/internal/loginenv"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/service"
)

// recordLimit is how long the last lines of the activity record may take.
const recordLimit = 2 * time.Second

type serveFlags struct {
	device      string
	logFormat   string
	logLevel    string
	drain       time.Duration
	shell       string
	env         string
	allowRoots  []string
	logCommands bool
	logFile     string
}

// Defaults of serve.
const (
	defaultDrain     = 10 * time.Second
	defaultLogFormat = "text"
	defaultLogLevel  = "info"
)

func newServe(a *app) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the executor in the foreground",
		Long: `Run the executor in the foreground until a signal: connect, prove who this
device is, and do what the server asks for.

A command runs in the shell, as you, in the workspace or the folder that the
instruction names. When its shell ends, whatever it left running gets a second
to finish and is ended then: nothing outlives its instruction. What cannot be
ended is logged by the number of its process. More: sema help instructions.

TERM and INT say goodbye, let running work finish within --drain-timeout, end
the rest and exit 0; a second signal ends everything at once. HUP is ignored.

--allow-root keeps the file instructions inside the named folders and the
temporary folder. Commands are not confined by it.

appendFile makes a new version of a file of up to 64 MiB in one step. A larger
file, or one that another process holds open for writing, is appended to in
place: its bytes appear whole, but not in one step with a crash of the machine.
A file with several names (hard links) is replaced under the name that was
written; the other names keep the old content.

Exit codes: 0 stopped by a signal; 2 wrong usage; 3 nothing enrolled; 4 another
executor on this machine holds the device; 5 revoked; 6 superseded by another
executor elsewhere; 7 too old for the server; 9 the private key cannot be read;
1 anything else.`,
		Example: "  sema device serve --log-format json\n  sema device serve --allow-root ~/code --drain-timeout 30s",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// Before signals are caught: one that came in between would be lost with
			// the program that caught it.
			if err := withoutSecretsInEnvironment(); err != nil {
				return err
			}
			ctx, orders := obeySignals(c.Context())
			defer orders.stop()
			err := a.serve(ctx, orders, f)
			if context.Cause(ctx) == errLeft {
				return nil // whatever the start that was given up has to say
			}
			return err
		},
	}
	f.declare(c.Flags())
	c.Flags().StringVar(&f.logFile, service.LogFileFlag, "", "log to this `FILE`, which is kept to 10 MiB and one older file")
	// For a service manager's file, and read where the exit code is made: told.
	c.Flags().Bool(service.ZeroWhenFinalFlag, false, "exit 0 where another start would be in vain")
	_ = c.Flags().MarkHidden(service.ZeroWhenFinalFlag) // fails for flags that are not there
	return c
}

// declare declares the flags of an executor; a service has them too.
func (f *serveFlags) declare(flags *pflag.FlagSet) {
	flags.StringVar(&f.device, "device", "", deviceFlagHelp)
	flags.StringVar(&f.logFormat, "log-format", defaultLogFormat, "the `FORMAT` of the log: text or json")
	flags.StringVar(&f.logLevel, "log-level", defaultLogLevel, "the least `LEVEL` to log: debug, info, warn or error")
	flags.DurationVar(&f.drain, "drain-timeout", defaultDrain, "the `TIME` that running work has to finish when stopped")
	flags.StringVar(&f.shell, "shell", "", "the `SHELL` for commands (default: bash, else sh)")
	flags.StringVar(&f.env, "env", string(loginenv.Auto), "the `MODE` of commands' environment: inherit, login or auto")
	flags.StringArrayVar(&f.allowRoots, "allow-root", nil, "keep file instructions inside the folder `DIR` (repeatable)")
	flags.BoolVar(&f.logCommands, "log-commands", false, "write command text and paths into the activity record")
}

// serve runs the executor of one enrolled device.
func (a *app) serve(ctx context.Context, orders *orders, f serveFlags) error {
	notifier := service.TakeNotifier()
	if f.logFile != "" {
		if err := a.logTo(f.logFile); err != nil {
			return err
		}
	}
	log, err := newLogger(a.stderr, f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	mode, err := loginenv.ParseMode(f.env)
	if err != nil {
		return exitWith(exitUsage, fmt.Errorf("--env: %w", err))
	}
	if f.drain < 0 {
		return usagef("--drain-timeout: %s is negative; give a time like 10s", f.drain)
	}
	home, record, err := a.chosen(f.device)
	if err != nil {
		return err
	}
	key, err := a.stores().Load(ctx, record)
	if err != nil {
		return err
	}
	transport, err := enroll.NewTransport(a.getenv)
	if err != nil {
		return err
	}
	network, err := executor.NewNetwork(record.Server, transport, userAgent())
	if err != nil {
		return err
	}
	fileConfig, err := containment(f.allowRoots)
	if err != nil {
		return err
	}
	env := loginenv.Resolve(ctx, loginenv.Config{
		Mode:      mode,
		Inherited: instructions.WithoutSecrets(os.Environ()),
		Log:       log,
	})
	if f.shell != "" {
		if _, err := instructions.FindShell(f.shell, env); err != nil {
			return exitWith(exitUsage, err)
		}
	}
	recorder := activity.New(activity.Config{Dir: record.Dir(), LogCommands: f.logCommands, Now: a.now, Log: log})

	x := executor.New(executor.Config{
		DeviceID:      record.DeviceID,
		Key:           key,
		WorkspaceRoot: record.WorkspaceRoot,
		Platform:      platform(),
		Excluded:      record.Excluded(),
		Network:       network,
		Server:        record.Server,
		LastPath:      record.WSPath,
		OnPath: func(path string) {
			if path == record.WSPath {
				return
			}
			if err := home.Update(record, func(r *enroll.Record) { r.WSPath = path }); err != nil {
				log.Warn("the path of the device lane could not be kept for when discovery is down", "err", err)
			}
		},
		Dir:     record.Dir(),
		Shell:   f.shell,
		Env:     env,
		Files:   fileConfig,
		Drain:   f.drain,
		Observe: observers{logged{log}, recorder},
		OnState: announce(notifier, log),
		Suspend: logind.Connect,
		Now:     a.now,
		Random:  a.random,
		Log:     log,
	})
	orders.to(x, log)
	if err = context.Cause(ctx); err == nil {
		log.Info("starting", "device", record.DeviceID, "server", record.Server, "workspace", record.WorkspaceRoot)
		warnWithoutWorkspace(ctx, log, record)
		err = x.Run(ctx)
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordLimit)
	defer cancel()
	if closed := recorder.Close(limit); closed != nil {
		log.Warn("the activity record could not be finished", "err", closed)
	}
	return a.ended(ctx, home, record, log, err)
}

// ended turns the end of an executor into the exit code and the words for it.
func (a *app) ended(ctx context.Context, home *enroll.Home, record *enroll.Record, log *slog.Logger, err error) error {
	var held *fence.HeldError
	var old *link.TooOldError
	switch {
	case err == nil:
		log.Info("stopped", "device", record.DeviceID)
		return nil
	case errors.As(err, &held):
		h := holder.Known(held.PID, held.Path)
		if now, err := holder.Of(record.Dir()); err == nil && now != nil {
			h = now
		}
		return exitWith(exitHeld, fmt.Errorf("%s is already being served on this machine by %s.\n%s", record.DeviceID, h,
			h.Step("One executor per device: leave that one to its work, or end it first")))
	case errors.Is(err, link.ErrRevoked):
		if fault.On("serve: a revoked key stays") {
			return exitWith(exitRevoked, err)
		}
		of, first := "its key has been deleted from this machine", ""
		if after := home.Revoke(context.WithoutCancel(ctx), record, a.stores(), a.now()); after != nil {
			log.Error("what a revocation takes could not all be done", "err", after)
			if trouble, kept := errors.AsType[*enroll.KeyError](after); kept {
				left := enroll.Remains{State: enroll.KeyUnsure, Store: record.KeyStore, Err: trouble}
				of, first = "its key could not be deleted from this machine: "+trouble.Why(), left.Advice(record.DeviceID)+"\n"
			}
		}
		return exitWith(exitRevoked, fmt.Errorf("%s was revoked: %s.\n%s%s", record.DeviceID, of, first,
			remedy.Step("To go on, enroll again", record.Server.EnrollCommand(record.WorkspaceRoot))))
	case errors.Is(err, link.ErrSuperseded):
		return exitWith(exitSuperseded, fmt.Errorf("another executor took over %s: a copy of its key is in use elsewhere.\nIf that is not you, revoke the device at the server; otherwise keep one of the two", record.DeviceID))
	case errors.As(err, &old):
		return exitWith(exitTooOld, fmt.Errorf("%w.\nInstall a newer version of sema", err))
	}
	var gone *enroll.NoDeviceError
	if _, now := home.Record(record.DeviceID); errors.As(now, &gone) {
		return gone // unenrolled while it started, which any other error comes of
	}
	return err
}

// containment makes the file layer's configuration of --allow-root.
func containment(roots []string) (*files.Config, error) {
	c := &files.Config{}
	for _, root := range roots {
		absolute, err := absoluteFolder(root)
		if err != nil {
			return nil, exitWith(exitUsage, fmt.Errorf("--allow-root: %w", err))
		}
		c.Roots = append(c.Roots, absolute)
	}
	return c, nil
}
