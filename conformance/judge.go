package conformance

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// judge judges the rows side by side, and the few that fail once more, alone: a
// machine can be too busy for a row's patience, and what is really broken fails
// alone as well. Where many fail it is the executor's fault, and not the crowd's.
func judge(ctx context.Context, cfg *Config, rows []Row, base string) []Result {
	results := make([]Result, len(rows))
	var mu sync.Mutex // over what follows, and while one is told
	var failed []int  // and not told
	again := cfg.Parallel > 1 && len(rows) > 1
	tell := func(i int) {
		if cfg.Done != nil {
			cfg.Done(results[i])
		}
	}
	take := func(i int, r Result) {
		mu.Lock()
		defer mu.Unlock()
		results[i] = r
		if r.Verdict != Fail || !again {
			tell(i)
			return
		}
		if failed = append(failed, i); len(failed) > cfg.Parallel {
			for _, i := range failed {
				tell(i)
			}
			failed, again = nil, false
		}
	}

	// The long rows first, so that none of them is left to run alone at the end.
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(rows[b].limit - rows[a].limit) })
	free := make(chan struct{}, cfg.Parallel)
	var working sync.WaitGroup
	for _, i := range order {
		free <- struct{}{}
		working.Go(func() {
			defer func() { <-free }()
			r := Result{Row: rows[i], Verdict: NotJudged}
			if ctx.Err() == nil {
				r = runRow(ctx, cfg, rows[i], base)
			}
			take(i, r)
		})
	}
	working.Wait()

	slices.Sort(failed)
	for _, i := range failed {
		results[i] = alone(ctx, cfg, results[i], base)
		tell(i)
	}
	return results
}

// alone judges a failed row once more. What it fails with then counts.
func alone(ctx context.Context, cfg *Config, crowded Result, base string) Result {
	aside := filepath.Join(base, crowded.Row.ID+".crowded")
	if os.RemoveAll(aside) != nil || os.Rename(filepath.Join(base, crowded.Row.ID), aside) != nil {
		return crowded
	}
	r := runRow(ctx, cfg, crowded.Row, base)
	if r.Verdict == NotJudged {
		_ = os.Rename(aside, filepath.Join(base, crowded.Row.ID)) // it stays what it was, and so do its files
		return crowded
	}
	_ = os.RemoveAll(aside)
	if r.Verdict != Fail {
		r.Crowded = crowded.Findings
	}
	return r
}
