package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says whom to judge, and how.
type Config struct {
	Enroll string // command line that enrolls; see the package comment
	Serve  string // command line that starts the executor
	// Only are the ids of the rows to run, in any order; a trailing * stands for
	// any end. None: all rows.
	Only []string
	// Parallel is how many rows run side by side. 0: 8, as most of them wait.
	Parallel int
	// Dir gets a folder per row, kept for a row that fails. "": a temporary
	// folder that is removed.
	Dir string
	// Done, if set, is told each result as it comes, one at a time.
	Done func(Result)
}

// ErrNoSuchRow reports an Only that names none.
var ErrNoSuchRow = errors.New("no such row")

// Select returns the rows that only names, in the guide's order.
func Select(only []string) ([]Row, error) {
	rows := Rows()
	if len(only) == 0 {
		return rows, nil
	}
	used := make([]bool, len(only))
	rows = slices.DeleteFunc(rows, func(r Row) bool {
		wanted := false
		for i, o := range only {
			prefix, open := strings.CutSuffix(o, "*")
			if o == r.ID || open && strings.HasPrefix(r.ID, prefix) {
				used[i], wanted = true, true
			}
		}
		return !wanted
	})
	for i, u := range used {
		if !u {
			return nil, fmt.Errorf("%w: %q; --list shows them all", ErrNoSuchRow, only[i])
		}
	}
	return rows, nil
}

// Run judges an executor and returns a result per row, in the guide's order. An
// error means that the suite could not do its work, and not that a row failed. A
// ctx that ends cuts the rows under way short; they fail.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	rows, err := Select(cfg.Only)
	if err != nil {
		return nil, err
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 8
	}
	base := cfg.Dir
	if base == "" {
		if base, err = os.MkdirTemp("", "conformance-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(base)
	} else if err = os.MkdirAll(base, 0o700); err != nil {
		return nil, err
	}
	// Executors answer with real paths.
	if base, err = filepath.Abs(base); err != nil {
		return nil, err
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return nil, err
	}

	results := make([]Result, len(rows))
	var telling sync.Mutex
	var working sync.WaitGroup
	free := make(chan struct{}, cfg.Parallel)
	// The long rows first, so that none of them is left to run alone at the end.
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(rows[b].limit - rows[a].limit) })
	for _, i := range order {
		free <- struct{}{}
		working.Go(func() {
			defer func() { <-free }()
			results[i] = runRow(ctx, &cfg, rows[i], base)
			if cfg.Done != nil {
				telling.Lock()
				defer telling.Unlock()
				cfg.Done(results[i])
			}
		})
	}
	working.Wait()
	return results, nil
}

// runRow gives one row its folder and its time.
func runRow(ctx context.Context, cfg *Config, row Row, base string) Result {
	limit := row.limit
	if limit == 0 {
		limit = defaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	c := &Case{ctx: ctx, cfg: cfg, row: &row, dir: filepath.Join(base, row.ID), trace: newTrace(), verdict: Pass}
	c.place = place{home: filepath.Join(c.dir, "home"), workspace: filepath.Join(c.dir, "work"), credential: credential}
	for _, d := range []string{c.place.home, c.place.workspace} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return Result{Row: row, Verdict: Fail, Findings: []string{"the suite itself: " + err.Error()}}
		}
	}
	c.judge()
	r := Result{Row: row, Verdict: c.verdict, Findings: c.findings, Took: time.Since(start)}
	if r.Verdict == Fail {
		r.Frames = c.trace.lines()
		for _, x := range c.procs {
			r.Output = append(r.Output, x.printed(15)...)
		}
		return r
	}
	_ = os.RemoveAll(c.dir) // kept folders are for failed rows
	return r
}
