package process

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Recover ends what an executor that was killed may have left running. Its
// supervisors end their trees when it dies, so that this mostly finds nothing;
// it waits for those that are still at it, ends what a stopped one holds, and
// looks for the marker in case they were killed too. It is called before the
// first Start.
//
// Nothing an entry says is believed unchecked. A number that now belongs to
// another process, another boot, an entry that is torn or made up: none of
// them gets anything signalled, and neither does what belongs to an executor
// that is alive.
//
// It returns a *SurvivorsError for what would not die before ctx ended, or
// within ten seconds.
func Recover(ctx context.Context, entries []Recorded, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(r Recorded) bool { return r.BootID != boot })
	if len(entries) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*closeQuarters)
	defer cancel()
	for _, r := range entries {
		if err := endSupervised(ctx, r); err != nil {
			log.Warn("a command of the last run will not die", "instruction", r.InstructionID, "err", err)
			return err
		}
	}
	if err := endMarked(ctx, entries); err != nil {
		log.Warn("commands of the last run will not die", "err", err)
		return err
	}
	return nil
}

// abandoned reports whether the entry's process is a supervisor whose executor
// is no more.
func abandoned(r Recorded) (proc, bool) {
	p, err := readProc(r.PID)
	if err != nil || p.start != r.StartTime || !p.live() {
		return p, false
	}
	argv := commandLine(p.pid)
	if len(argv) != 1 || argv[0] != supervisorName {
		return p, false
	}
	executor, ok := executorOf(p.pid)
	return p, ok && !sameAndAlive(executor)
}

func sameAndAlive(p proc) bool {
	now, err := readProc(p.pid)
	return err == nil && now.start == p.start && now.live()
}

// endSupervised waits for the supervisor of r to end its tree, and does it in
// its place when it does not.
func endSupervised(ctx context.Context, r Recorded) error {
	patience := time.Now().Add(answerPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		supervisor, ok := abandoned(r)
		if !ok {
			return nil
		}
		var tree []proc
		if now := time.Now(); now.After(patience) {
			tree, _ = descendants(supervisor.pid, nil)
			for _, p := range tree {
				_ = signalIf(p, func(p proc) bool { return descends(p, supervisor.pid) }, unix.SIGKILL)
			}
			if len(tree) == 0 {
				_ = signalIf(supervisor, sameAndAlive, unix.SIGKILL)
			}
		}
		if err := wait(ctx, pause); err != nil {
			e := &SurvivorsError{PIDs: []int{supervisor.pid}}
			for _, p := range tree {
				e.PIDs = append(e.PIDs, p.pid)
			}
			return e
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endMarked ends every process that carries the marker of one of the entries,
// and what descends from it, until two looks in a row find none.
func endMarked(ctx context.Context, entries []Recorded) error {
	for clean := 0; clean < 2; {
		found := marked(entries)
		for _, p := range found {
			_ = signalIf(p, sameAndAlive, unix.SIGKILL)
		}
		clean++
		if len(found) > 0 {
			clean = 0
		}
		if err := wait(ctx, 2*time.Millisecond); err != nil {
			e := &SurvivorsError{}
			for _, p := range found {
				e.PIDs = append(e.PIDs, p.pid)
			}
			if len(found) == 0 {
				return err
			}
			return e
		}
	}
	return nil
}

// marked lists the live processes that carry an entry's marker, with their
// descendants, but not ourselves, nor what we descend from, nor what belongs
// to an executor that is alive.
func marked(entries []Recorded) []proc {
	wanted := make(map[string]uint64, len(entries))
	for _, r := range entries {
		if r.InstructionID == "" || strings.Contains(r.InstructionID, "\x00") {
			continue
		}
		wanted[Marker+"="+r.InstructionID] = r.StartTime
	}
	pids, err := allPIDs()
	if err != nil || len(wanted) == 0 {
		return nil
	}
	var found []proc
	for _, pid := range pids {
		p, err := readProc(pid)
		if err != nil || !p.live() || !carries(p, wanted) || untouchable(p) {
			continue
		}
		found = append(found, p)
		below, _ := descendants(pid, func(child int) bool { return child == os.Getpid() })
		found = append(found, below...)
	}
	return found
}

func carries(p proc, wanted map[string]uint64) bool {
	for _, v := range environment(p.pid) {
		if start, ok := wanted[v]; ok && p.start >= start {
			return true
		}
	}
	return false
}

// untouchable: this process and its ancestors, and the commands of an executor
// that is alive.
func untouchable(p proc) bool {
	if p.pid == os.Getpid() {
		return true
	}
	if self, err := readProc(os.Getpid()); err == nil && descends(self, p.pid) {
		return true
	}
	for pid := p.ppid; pid > 1; {
		if argv := commandLine(pid); len(argv) == 1 && (argv[0] == supervisorName || argv[0] == keeperName) {
			executor, ok := executorOf(pid)
			return ok && sameAndAlive(executor)
		}
		parent, err := readProc(pid)
		if err != nil {
			return false
		}
		pid = parent.ppid
	}
	return false
}
