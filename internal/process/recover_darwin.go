package process

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"
)

// Recover ends what an executor that was killed may have left running: every
// process that carries the marker of one of the entries, and what descends
// from it. It is called before the first Start. Entries of another boot, of an
// executor that is alive, torn or made up, find nothing. It returns a *SurvivorsError for what would not
// die before ctx ended, or within ten seconds.
func Recover(ctx context.Context, entries []Recorded, log *slog.Logger) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	var markers []string
	for _, r := range entries {
		executor := identity{pid: r.PID, start: r.StartTime}
		if now, err := startedAt(r.PID); err == nil && now == executor {
			continue
		}
		if r.BootID == boot && r.InstructionID != "" {
			markers = append(markers, Marker+"="+r.InstructionID)
		}
	}
	if len(markers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*closeQuarters)
	defer cancel()
	for clean := 0; clean < 2; clean++ {
		found, err := marked(markers)
		if err != nil {
			return err
		}
		e := &SurvivorsError{}
		for id, p := range found {
			signalAgain(p, unix.SIGKILL)
			e.PIDs = append(e.PIDs, id.pid)
			clean = -1
		}
		pause := time.NewTimer(lookInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if log != nil {
				log.Warn("commands of the last run will not die", "err", e)
			}
			return e
		}
	}
	return nil
}

// marked lists the live processes that carry one of the markers, and their
// descendants, but not ourselves nor what we descend from.
func marked(markers []string) (map[identity]proc, error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	line := lineOf(all)
	found := make(map[identity]proc)
	for _, p := range all {
		for _, marker := range markers {
			if !line[p.pid] && carries(p.pid, marker) {
				found[p.identity] = p
			}
		}
	}
	below(all, found)
	for id, p := range found {
		if p.zombie || line[p.pid] {
			delete(found, id)
		}
	}
	return found, nil
}
