package process

import (
	"context"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/process/lineage"
)

// Recover ends what an executor that was killed may have left running: the shells of
// the entries that still live, their sessions, every process that carries the marker
// of an entry, and what descends from these. It is called before the first Start.
// Entries of another boot, of an executor that is alive, torn or made up, find
// nothing. It returns a *SurvivorsError for what would not die before ctx ended, or
// within ten seconds.
func Recover(ctx context.Context, entries []Recorded, log *slog.Logger) error {
	boot, err := BootID()
	if err != nil {
		return err
	}
	var shells []lineage.ID
	var markers []string
	for _, r := range entries {
		if r.BootID != boot {
			continue
		}
		id := lineage.ID{PID: r.PID, Start: r.StartTime}
		shells = append(shells, id)
		if r.InstructionID != "" {
			markers = append(markers, Marker+"="+r.InstructionID)
		}
	}
	if len(shells) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*closeQuarters)
	defer cancel()
	var left *lineage.Tree
	for clean := 0; clean < 2; clean++ {
		now, err := table()
		if err != nil {
			return err
		}
		if left == nil {
			left = lineage.Left(now, kernel{}, os.Getpid(), shells, markers)
		}
		e := &SurvivorsError{}
		for _, p := range left.Look(now, kernel{}) {
			signalAgain(p, unix.SIGKILL)
			e.PIDs = append(e.PIDs, p.PID)
			clean = -1
		}
		pause := time.NewTimer(lookInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if clean >= 0 {
				return ctx.Err()
			}
			if log != nil {
				log.Warn("commands of the last run will not die", "err", e)
			}
			return e
		}
	}
	return nil
}
