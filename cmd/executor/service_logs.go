package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/service"
)

func newServiceLogs(a *app, host serviceHost) *cobra.Command {
	var device string
	var query service.LogQuery
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show the log of a device's service",
		Long: `Show the log of a device's service: from the journal on Linux, from its log file
on macOS. It has ids, kinds, sizes, durations and codes; never what commands
print.`,
		Example: "  sema device service logs --follow --lines 20",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if query.Lines < 0 {
				return usagef("--lines: %d is negative", query.Lines)
			}
			id, err := a.serviceDevice(device)
			if err != nil {
				return err
			}
			manager, err := host.manager()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			return manager.Logs(ctx, id, query, a.stdout)
		},
	}
	flags := c.Flags()
	flags.StringVar(&device, "device", "", deviceFlagHelp)
	flags.IntVarP(&query.Lines, "lines", "n", 100, "how many of the last lines")
	flags.BoolVarP(&query.Follow, "follow", "f", false, "go on with new lines until interrupted")
	return c
}
