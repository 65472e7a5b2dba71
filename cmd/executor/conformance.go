package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/conformance"
	"github.com/sema-agent/device-executor/wire"
)

type conformanceFlags struct {
	executor string
	enroll   string
	only     []string
	parallel int
	keep     string
	junit    string
	list     bool
	json     bool
}

func newConformance(a *app) *cobra.Command {
	var f conformanceFlags
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Judge an executor by the protocol: this one, or any other",
		Long: `Judge an executor by the protocol: this one, or any other.

One row per promise of the protocol's guide: pass, FAIL with what was found and
the frames of the exchange, or not applicable. On a terminal rows are folded;
elsewhere each is one line, so that 'grep' finds it whole. Each row runs against
a reference server of its own on this machine, in a folder of its own; what is
claimed is checked on processes, files, sockets and memory where that is
possible, and where half a promise cannot be (nothing is closed to root) that is
said. If a few rows fail they are judged once more, alone, and that counts; what
was found beside the others is shown too.

Another executor is given by two command lines. Each is given to /bin/sh -c as
it is, in the row's folder, so name programs by whole paths. Signals go to what
the line runs, also where the shell stays before it; a line that ends in one
command, or in 'exec' and one, is the surest. These words are replaced, and the
same is in the environment:

  {server}      SEMA_SERVER      the server's address, http://127.0.0.1:PORT
  {home}        SEMA_HOME        an empty folder for the executor's own files
  {workspace}   SEMA_WORKSPACE   the folder to enroll as workspace root
  {credential}  SEMA_CREDENTIAL  the user's bearer credential (--enroll only)

HOME and TMPDIR are folders of the row's as well, and are searched for what must
not be kept; XDG_* folders and the session bus are taken away, so that neither
your files nor your keychain are reached. Have the executor keep its key in a
file, as the default lines do with --key-store file: in a keychain it cannot be
looked at. What a runtime needs of your own home, name in the line.

--enroll registers the device and ends with code 0; --executor runs until a
signal. Both may be run again for the same folder.

Exit codes: 0 if no row failed, 1 if one did, if the two command lines do not
bring the executor to the server, or if the suite was interrupted.`,
		Example: `  sema device conformance --only 'R11-*'
  sema device conformance --enroll "$PWD/theirs enroll {server} {home}" \
    --executor "$PWD/theirs serve {home}"`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.conformance(c.Context(), f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.executor, "executor", "", "the command line `CMD` that starts the executor (default: this one)")
	flags.StringVar(&f.enroll, "enroll", "", "the command line `CMD` that enrolls it (default: this one)")
	flags.StringSliceVar(&f.only, "only", nil, "only these `ROWS`, by id; a trailing * stands for any end")
	flags.IntVar(&f.parallel, "parallel", 8, "the number `N` of rows that run side by side")
	flags.StringVar(&f.keep, "keep", "", "the folder `DIR` in which the folders of failed rows are kept")
	flags.StringVar(&f.junit, "junit", "", "write the results to this `FILE` as JUnit XML too")
	flags.BoolVar(&f.list, "list", false, "list the rows and run none")
	flags.BoolVar(&f.json, "json", false, "print as JSON")
	return c
}

func (a *app) conformance(ctx context.Context, f conformanceFlags) error {
	rows, err := conformance.Select(f.only)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if f.list {
		return a.listRows(rows, f.json)
	}
	if f.parallel < 1 {
		return usagef("--parallel %d: at least one row has to run", f.parallel)
	}
	if (f.executor == "") != (f.enroll == "") {
		return usagef("--executor and --enroll go together: one starts the executor, the other enrolls it")
	}
	if f.executor == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		f.enroll, f.executor = conformance.Ours(self)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	start := time.Now()
	cfg := conformance.Config{Enroll: f.enroll, Serve: f.executor, Only: f.only, Parallel: f.parallel, Dir: f.keep}
	if !f.json {
		p := conformance.NewPrinter(a.stdout)
		if isTerminal(a.stdout) {
			p.Fold(below)
		}
		cfg.Done = func(r conformance.Result) { _ = p.Row(r) } // a reader that left misses the rest
	}
	var junit *os.File
	if f.junit != "" { // now, and not when the work is done
		if junit, err = os.Create(f.junit); err != nil {
			return fmt.Errorf("write the JUnit report: %w", err)
		}
		defer junit.Close()
	}
	results, err := conformance.Run(ctx, cfg)
	if unusable := (*conformance.UnusableError)(nil); errors.As(err, &unusable) && junit != nil {
		return errors.Join(err, conformance.WriteJUnit(junit, []conformance.Result{unusable.Result()}, time.Since(start)))
	}
	if err != nil {
		return err
	}
	took := time.Since(start)
	if junit != nil {
		if err := errors.Join(conformance.WriteJUnit(junit, results, took), junit.Close()); err != nil {
			return fmt.Errorf("write the JUnit report: %w", err)
		}
	}
	n := conformance.Count(results)
	if f.json {
		err = conformance.WriteJSON(a.stdout, results)
	} else {
		_, err = fmt.Fprintf(a.stdout, "%d passed, %d failed, %d not applicable, in %s\n",
			n[conformance.Pass], n[conformance.Fail], n[conformance.NotApplicable], took.Round(100*time.Millisecond))
	}
	switch left := n[conformance.NotJudged]; {
	case err != nil:
	case left > 0:
		err = fmt.Errorf("interrupted: %d rows were not judged", left)
	case n[conformance.Fail] > 0:
		err = exitWith(exitUnexpected, nil)
	}
	return err
}

// listedRow is one row of `conformance --list --json`.
type listedRow struct {
	ID      string      `json:"id"`
	Section string      `json:"section"`
	Promise string      `json:"promise"`
	Needs   []wire.Kind `json:"needs,omitempty"`
}

func (a *app) listRows(rows []conformance.Row, asJSON bool) error {
	if asJSON {
		listed := make([]listedRow, len(rows))
		for i, r := range rows {
			listed[i] = listedRow{r.ID, r.Section, r.Promise, r.Needs}
		}
		return json.NewEncoder(a.stdout).Encode(listed)
	}
	if isTerminal(a.stdout) {
		row := func(id, section, promise string) {
			fmt.Fprintln(a.stdout, below(fmt.Sprintf("%-24s %-12s ", id, section), promise))
		}
		row("ROW", "SECTION", "PROMISE")
		for _, r := range rows {
			row(r.ID, r.Section, r.Promise)
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROW\tSECTION\tPROMISE")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.ID, r.Section, r.Promise)
	}
	return w.Flush()
}
