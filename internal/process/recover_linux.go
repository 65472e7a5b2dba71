package process

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Recover ends what an executor that was killed may have left running. Its
// supervisors end their trees when it dies, so that this mostly finds nothing;
// it waits for those that are still at it and for their keepers, ends what a
// stopped supervisor holds, lets a stopped keeper go on, and looks for the marker
// in case they were killed too. It is called before the first Start.
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
	if len(entries) == 0 {
		return nil
	}
	boot, err := BootID()
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(r Recorded) bool { return r.BootID != boot })
	if len(entries) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*closeQuarters)
	defer cancel()
	alive := &SurvivorsError{}
	for _, r := range entries {
		alive.PIDs = append(alive.PIDs, endSupervised(ctx, r)...)
	}
	alive.PIDs = append(alive.PIDs, awaitKeepers(ctx)...)
	alive.PIDs = append(alive.PIDs, endMarked(ctx, entries)...)
	slices.Sort(alive.PIDs)
	alive.PIDs = slices.Compact(alive.PIDs)
	if len(alive.PIDs) > 0 {
		log.Warn("commands of the last run will not die", "pids", alive.PIDs)
		return alive
	}
	return ctx.Err()
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
// its place when it does not. It returns what is alive when ctx ends.
func endSupervised(ctx context.Context, r Recorded) (alive []int) {
	patience := time.Now().Add(answerPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		supervisor, ok := abandoned(r)
		if !ok {
			return nil
		}
		tree, _ := descendants(supervisor.pid, nil)
		if time.Now().After(patience) {
			for _, p := range tree {
				_ = signalIf(p, func(p proc) bool { return descends(p, supervisor.pid) }, unix.SIGKILL)
			}
			if len(tree) == 0 {
				_ = signalIf(supervisor, sameAndAlive, unix.SIGKILL)
			}
		}
		if wait(ctx, pause) != nil {
			return append(pidsOf(tree), supervisor.pid)
		}
	}
}

// idlePatience is how long a keeper may have nothing below it, and take nothing in,
// before it is taken for something else: a real one ends at once when it has no
// child, and of a tree that keeps on forking a look may see nothing.
const idlePatience = 500 * time.Millisecond

// awaitKeepers waits until the keepers whose executor is no more have ended, and with
// them what is below them: supervisors still at it, and what a killed one left. It
// continues those that a command stopped. It returns what outlived its keeper, or is
// alive when ctx ends. Whoever only looks like a keeper is continued, or waited for,
// and no more.
func awaitKeepers(ctx context.Context) (alive []int) {
	woken := make(map[proc]bool)
	type state struct {
		reaped uint64
		since  time.Time
	}
	idle := make(map[proc]state)
	below := make(map[proc]bool)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var waited []int // keepers with nothing below them that may not have looked yet
		busy := false
		for _, p := range abandonedKeepers() {
			id := p.identity()
			if p.state == 'T' {
				woken[id] = signalIf(p, sameAndAlive, unix.SIGCONT) == nil
			}
			tree, _ := descendants(p.pid, nil)
			for _, p := range tree {
				below[p.identity()] = true
			}
			was, known := idle[id]
			if !known || len(tree) > 0 || was.reaped != p.reaped {
				was = state{p.reaped, time.Now()}
				idle[id] = was
			}
			switch {
			case len(tree) > 0:
				busy = true
			case woken[id] || time.Since(was.since) < idlePatience:
				busy = true
				waited = append(waited, p.pid)
			}
		}
		if busy && wait(ctx, pause) == nil {
			continue
		}
		for p := range below {
			if sameAndAlive(p) {
				alive = append(alive, p.pid)
			}
		}
		return append(alive, waited...)
	}
}

// abandonedKeepers lists the keepers whose executor is no more.
func abandonedKeepers() (found []proc) {
	pids, _ := allPIDs()
	for _, pid := range pids {
		argv := commandLine(pid)
		if len(argv) != 1 || argv[0] != keeperName {
			continue
		}
		if executor, ok := executorOf(pid); !ok || sameAndAlive(executor) || !sharesNumbers(pid) {
			continue
		}
		if p, err := readProc(pid); err == nil && p.live() {
			found = append(found, p)
		}
	}
	return found
}

// sharesNumbers reports whether a process is in our pid namespace. One of a
// container has another number for its executor.
func sharesNumbers(pid int) bool {
	ours, err1 := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
	return err1 == nil && err2 == nil && ours == theirs
}

func pidsOf(procs []proc) []int {
	pids := make([]int, len(procs))
	for i, p := range procs {
		pids[i] = p.pid
	}
	return pids
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
// and what descends from it, until two looks in a row find none. It returns
// what is alive when ctx ends.
//
// Here no sub-reaper keeps the tree together: a process whose marked parent
// dies first would be out of reach. So all of it is stopped before any of it
// is killed.
func endMarked(ctx context.Context, entries []Recorded) (alive []int) {
	stopped := make(map[proc]bool)
	for clean := 0; clean < 2; clean++ {
		found := marked(entries)
		fresh := false
		for _, p := range found {
			clean = -1
			if id := p.identity(); !stopped[id] {
				stopped[id] = true
				fresh = true
				_ = signalIf(p, sameAndAlive, unix.SIGSTOP)
			}
		}
		if !fresh {
			for _, p := range found {
				_ = signalIf(p, sameAndAlive, unix.SIGKILL)
			}
		}
		if wait(ctx, 2*time.Millisecond) != nil {
			return pidsOf(found)
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
		below, _ := descendants(pid, func(p proc) bool { return p.pid == os.Getpid() })
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
