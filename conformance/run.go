package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
)

// Config says whom to judge, and how.
type Config struct {
	Enroll string // command line that enrolls; see the package comment
	Serve  string // command line that starts the executor
	// Only are the ids of the rows to run, in any order; a trailing * stands for
	// any end. None: all rows.
	Only []string
	// Parallel is how many rows run side by side. 0: 8, as most of them wait. If no
	// more than that fail, each of them is judged once more, alone.
	Parallel int
	// Dir gets a folder per row, kept for a row that fails. "": a temporary
	// folder that is removed.
	Dir string
	// Done, if set, is told each result as it is final, one at a time.
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
// error means that the suite could not do its work, and not that a row failed; it is
// an *UnusableError where the two command lines do not even bring the executor to
// the server. A ctx that ends leaves the rows that it cuts short not judged.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	rows, err := Select(cfg.Only)
	if err != nil {
		return nil, err
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 8
	}
	base, remove, err := folder(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("make the folder of the rows: %w", err)
	}
	defer remove()
	if err := tryOut(ctx, &cfg, base); err != nil {
		return nil, err
	}

	return judge(ctx, &cfg, rows, base), nil
}

// folder makes the folder of the rows' folders, named by its real path, as
// executors answer with real paths; remove takes a temporary one away.
func folder(dir string) (base string, remove func(), err error) {
	remove = func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "conformance-"); err != nil {
			return "", nil, err
		}
		made := dir
		remove = func() { _ = os.RemoveAll(made) } // what is left is in the system's own temporary folder
	} else if err = os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	if base, err = filepath.Abs(dir); err == nil {
		base, err = filepath.EvalSymlinks(base)
	}
	return base, remove, err
}

// UnusableError says that nothing was judged, since the two command lines do not
// bring the executor to the server.
type UnusableError struct {
	Finding string
	Output  []string // the end of what the command printed
}

func (e *UnusableError) Error() string {
	text := "nothing was judged: " + e.Finding
	for _, l := range e.Output {
		text += "\n  " + l
	}
	return text
}

// Result tells it as a row that failed, for reports that have nothing else.
func (e *UnusableError) Result() Result {
	row := Row{ID: "try-out", Section: "§1", Promise: "the two command lines bring the executor to the server"}
	return Result{Row: row, Verdict: Fail, Findings: []string{e.Finding}, Output: e.Output}
}

// tryOut enrolls the executor once and starts it. Without, a wrong command line
// would be told by every row, and rows in which enrollment has to fail would pass.
func tryOut(ctx context.Context, cfg *Config, base string) error {
	reached := false // what it does wrong there is for the rows to say
	r := runRow(ctx, cfg, Row{ID: "try-out", run: func(c *Case) {
		c.open(refserver.Config{})
		c.enroll()
		x := c.serve()
		c.eventually(patience, func() bool { reached = c.trace.any(); return reached || x.ended() })
		switch {
		case reached:
		case x.ended():
			c.stop("the starting command ended with code %d without connecting", x.code())
		default:
			c.stop("the starting command ran for %v without connecting", patience)
		}
	}}, base)
	if reached || r.Verdict != Fail {
		return nil
	}
	e := &UnusableError{Finding: r.Findings[0], Output: r.Output}
	if strings.Contains(e.Finding, "code 127") || strings.Contains(e.Finding, "code 126") {
		e.Finding += "; /bin/sh runs the line in a folder of the row's own, so name programs by their whole path"
	}
	return e
}

// make makes the row's folder anew. What an earlier run has kept there goes, lest it
// be taken for what happens now; a folder of anybody else's is left alone.
func (p place) make(dir string) error {
	ours := []string{p.home, p.workspace, p.temp, p.user}
	if _, err := os.Lstat(dir); err == nil {
		for _, d := range ours {
			if info, err := os.Lstat(d); err != nil || !info.IsDir() {
				return fmt.Errorf("%s is there and is no folder of an earlier run: name another folder to keep rows in", dir)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove what an earlier run has kept: %w", err)
		}
	}
	for _, d := range ours {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make the row's folder: %w", err)
		}
	}
	return nil
}

// runRow gives one row its folder and its time.
func runRow(ctx context.Context, cfg *Config, row Row, base string) Result {
	limited, cancel := context.WithTimeout(ctx, row.patience())
	defer cancel()
	start := time.Now()
	c := &Case{ctx: limited, cfg: cfg, row: &row, dir: filepath.Join(base, row.ID), trace: newTrace(), own: map[string]bool{}, known: map[int]string{}, verdict: Pass}
	c.place = place{home: filepath.Join(c.dir, "home"), workspace: filepath.Join(c.dir, "workspace"), temp: filepath.Join(c.dir, "tmp"),
		user: filepath.Join(c.dir, "user"), credential: credential}
	if err := c.place.make(c.dir); err != nil {
		return Result{Row: row, Verdict: Fail, Findings: []string{"the suite itself: " + err.Error()}}
	}
	c.judge()
	if ctx.Err() != nil {
		c.verdict, c.findings = NotJudged, nil
	}
	r := Result{Row: row, Verdict: c.verdict, Findings: c.findings, Notes: c.notes, Took: time.Since(start)}
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
