package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newServiceStart(a *app, host serviceHost) *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:   "start",
		Short: "Start the service of a device",
		Long: `Start the service of a device and wait until its executor is up: it holds the
device and looks for its server. Exit code: the executor's own, if it ended for
a reason that is final.`,
		Example: "  sema device service start",
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
			if err := a.startable(c, manager, id); err != nil {
				return err
			}
			waiting := newProgress(a, "Waiting for the executor")
			err = manager.Start(c.Context(), id)
			waiting.stop()
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "The service of %s is running.\n", id)
			return nil
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	return c
}

func newServiceStop(a *app, host serviceHost) *cobra.Command {
	var device string
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the service of a device until it is started again",
		Long: `Stop the service of a device. Running commands get the time of --drain-timeout
to finish. The service starts again by 'start', and by itself with the machine
or your next login; to prevent that, uninstall it.`,
		Example: "  sema device service stop",
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
			err = manager.Stop(c.Context(), id)
			waiting.stop()
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "The service of %s is stopped.\n", id)
			return nil
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	return c
}
