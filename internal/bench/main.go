// Command bench measures what an executor costs, each time beside the bare way of
// doing the same in the same run, and prints the ratio: numbers of another machine,
// or of another hour on this one, compare with nothing.
//
// scripts/bench runs it. It judges nothing and fails for nothing but an error.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
)

func main() {
	process.RunIfSupervisor()
	var (
		rounds = flag.Int("rounds", 300, "how often each short thing is done")
		size   = flag.Int64("bytes", 256<<20, "how much output a command prints")
		folder = flag.String("dir", os.TempDir(), "where files are written: its file system decides")
		sema   = flag.String("sema", "", "the program whose idling is measured; \"\": not measured")
		idle   = flag.Duration("idle", 20*time.Second, "for how long")
	)
	flag.Parse()
	if err := measure(context.Background(), *rounds, *size, *folder, *sema, *idle); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, rounds int, size int64, folder, sema string, idle time.Duration) error {
	header()
	if err := starts(ctx, rounds); err != nil {
		return fmt.Errorf("starting commands: %w", err)
	}
	if err := throughLane(ctx, rounds, size); err != nil {
		return fmt.Errorf("commands through the lane: %w", err)
	}
	if err := writes(ctx, rounds, folder); err != nil {
		return fmt.Errorf("writing files: %w", err)
	}
	if sema != "" {
		if err := idling(ctx, sema, idle); err != nil {
			return fmt.Errorf("idling: %w", err)
		}
	}
	return nil
}
