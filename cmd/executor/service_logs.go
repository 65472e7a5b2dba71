package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/service"
)

func newServiceLogs(a *app) *cobra.Command {
	var query service.LogQuery
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show the log of a device's service",
		Long: `Show the log of a device's service: from the journal on Linux, from its log file
on macOS. It has ids, kinds, sizes, durations and codes; never what commands
print. Its lines are JSON if the service was installed with --log-format json.`,
		Example: "  sema device service logs --follow --lines 20",
		PreRunE: func(*cobra.Command, []string) error {
			if query.Lines < 0 {
				return usagef("--lines takes a number of lines; not %d", query.Lines)
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.IntVarP(&query.Lines, "lines", "n", 100, "only the last `N` lines")
	flags.BoolVarP(&query.Follow, "follow", "f", false, "go on with new lines until interrupted")
	return a.aboutService(c, func(ctx context.Context, m service.Manager, id string) error {
		ctx, stop := untilInterrupted(ctx, os.Interrupt)
		defer stop()
		return m.Logs(ctx, id, query, a.stdout)
	})
}
