package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/service"
)

func newServiceStart(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "start",
		Short: "Start the service of a device",
		Long: `Start the service of a device and wait until its executor is up: it holds the
device and looks for its server. Exit code: the executor's own, if it ended for
a reason that is final.`,
		Example: "  sema device service start",
	}
	var asJSON bool
	jsonFlag(c, &asJSON)
	return a.aboutService(c, func(ctx context.Context, m service.Manager, id string) error {
		if err := a.startable(ctx, m, id); err != nil {
			return err
		}
		waiting := newProgress(a, "Waiting for the executor")
		err := m.Start(ctx, id)
		waiting.stop()
		if err != nil {
			return err
		}
		return a.done(asJSON, serviceDevice{id, true}, "The service of %s is running.", id)
	})
}

func newServiceStop(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the service of a device until it is started again",
		Long: `Stop the service of a device. Running commands get the time of --drain-timeout
to finish. The service starts again by 'start', and by itself with the machine
or your next login; to prevent that, uninstall it.`,
		Example: "  sema device service stop",
	}
	var asJSON bool
	jsonFlag(c, &asJSON)
	return a.aboutService(c, func(ctx context.Context, m service.Manager, id string) error {
		waiting := newProgress(a, "Waiting for running commands to finish")
		err := m.Stop(ctx, id)
		waiting.stop()
		if err != nil {
			return err
		}
		return a.done(asJSON, serviceDevice{id, false}, "The service of %s is stopped.", id)
	})
}
