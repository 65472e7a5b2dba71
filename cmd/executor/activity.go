package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/wire"
)

const (
	followPause     = 250 * time.Millisecond // between two looks at the record
	mostTextOnShow  = 400                    // characters of a command or a path
	activityOutcome = 43                     // the column where how it ended begins
	activityKind    = 18                     // columns for a kind, which is what the server sent
)

type activityFlags struct {
	device   string
	follow   bool
	since    string
	kinds    []string
	outcomes []string
	limit    int
	json     bool
}

func newActivity(a *app) *cobra.Command {
	var f activityFlags
	c := &cobra.Command{
		Use:   "activity",
		Short: "What the cloud did on this machine",
		Long: `What the cloud did on this machine: a line for each instruction, from the
record that the executor keeps in the device's folder. It is bounded in size, so
the oldest lines go. Command text and paths are in it only if the executor ran
with --log-commands; what commands print and what files hold never is.

Outcomes are ok, failed (all but ok), not_started and killed (cancelled), fenced
(ended because the server no longer counted on it), and the protocol's error
codes, such as timeout.`,
		Example: "  sema device activity --since 2h --kind exec --outcome failed\n  sema device activity -f",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			filter, err := a.activityFilter(f)
			if err != nil {
				return err
			}
			home, record, err := a.chosen(f.device)
			if err != nil {
				return err
			}
			return a.showActivity(c.Context(), home, record, f, filter)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.device, "device", "", deviceFlagHelp)
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on showing what comes, until interrupted")
	flags.StringVar(&f.since, "since", "", "leave out what is older than `TIME`: 90m, 2h, or 2026-03-04T12:00:00Z")
	flags.StringSliceVar(&f.kinds, "kind", nil, "only these `KINDS` of instructions, such as exec,writeFile")
	flags.StringSliceVar(&f.outcomes, "outcome", nil, "only these `OUTCOMES`, such as failed or ok,timeout")
	flags.IntVarP(&f.limit, "limit", "n", 100, "of what there is, only the last `N`; 0: all")
	flags.BoolVar(&f.json, "json", false, "print each line as JSON")
	return c
}

// activityFilter reads the flags that choose lines.
func (a *app) activityFilter(f activityFlags) (activity.Filter, error) {
	var filter activity.Filter
	if f.limit < 0 {
		return filter, usagef("--limit takes a number of lines, 0 for all; not %d", f.limit)
	}
	if f.since != "" {
		if d, err := time.ParseDuration(f.since); err == nil {
			if d <= 0 {
				return filter, usagef("--since %s is not in the past: give how long ago, like 90m or 2h", f.since)
			}
			filter.Since = a.now().Add(-d)
		} else if filter.Since, err = time.Parse(time.RFC3339, f.since); err != nil {
			return filter, usagef("--since takes a duration like 90m or 2h, or a time like 2026-03-04T12:00:00Z; not %q", f.since)
		} else if filter.Since.After(a.now()) {
			return filter, usagef("--since %s is in the future: nothing can be on record from then on.\nThe clock here says %s", f.since, a.now().Format(time.RFC3339))
		}
	}
	for _, k := range f.kinds {
		if !wire.Kind(k).Known() {
			return filter, usagef("there is no kind of instruction %q.\nThe kinds are %s", k, list(wire.Kinds()))
		}
		filter.Kinds = append(filter.Kinds, wire.Kind(k))
	}
	for _, o := range f.outcomes {
		if !slices.Contains(activity.Outcomes(), o) {
			return filter, usagef("there is no outcome %q.\nThe outcomes are %s", o, list(activity.Outcomes()))
		}
	}
	filter.Outcomes = f.outcomes
	return filter, nil
}

func list[S ~string](names []S) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(n))
	}
	return b.String()
}

func (a *app) showActivity(ctx context.Context, home *enroll.Home, record *enroll.Record, f activityFlags, filter activity.Filter) error {
	reader := activity.NewReader(record.Dir())
	defer reader.Close()
	show := a.printEntry
	if f.json {
		show = func(e activity.Entry, _ int) error { return json.NewEncoder(a.stdout).Encode(e) }
	}
	var past []activity.Entry
	for {
		e, ok, err := reader.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		past = append(past, e)
	}
	nothing := "Nothing is on record for %s yet."
	if len(past) > 0 {
		nothing = "The record of %s holds nothing of the kind."
	}
	past = slices.DeleteFunc(activity.Unended(past), func(e activity.Entry) bool { return !filter.Takes(e) })
	if f.limit > 0 && len(past) > f.limit {
		if !f.json {
			fmt.Fprintf(a.stderr, "The last %d of %d; --limit 0 shows all.\n", f.limit, len(past))
		}
		past = past[len(past)-f.limit:]
	}
	serving := a.serving(record)
	for _, e := range past {
		running := serving.pid
		if e.Time.Before(serving.since) {
			running = 0 // of an earlier executor that had the same pid, as in containers
		}
		if err := show(e, running); err != nil {
			return err
		}
	}
	if n := reader.Skipped(); n > 0 {
		fmt.Fprintf(a.stderr, "Left out: %s of the record that cannot be read, as a crash leaves them.\n", plural(n, "line"))
	}
	a.noteOvertaken(reader, 0)
	if !f.follow {
		if len(past) == 0 && !f.json {
			fmt.Fprintf(a.stderr, nothing+"\n", record.DeviceID)
		}
		return nil
	}
	return a.followActivity(ctx, home, record, reader, filter, show)
}

// unknownPID stands for an executor that serves the device and left no number.
const unknownPID = -1

// serving is who serves a device now, and since when, as far as that is known.
type serving struct {
	pid   int // 0: nobody
	since time.Time
}

func (a *app) serving(record *enroll.Record) serving {
	h := held(record.Dir())
	switch {
	case h == nil:
		return serving{}
	case h.PID == 0:
		return serving{pid: unknownPID}
	case h.Says == nil:
		return serving{pid: h.PID}
	}
	return serving{h.PID, h.Says.Started}
}

// followActivity shows what comes until it is interrupted, or the device is
// enrolled no longer.
func (a *app) followActivity(ctx context.Context, home *enroll.Home, record *enroll.Record, reader *activity.Reader, filter activity.Filter,
	show func(activity.Entry, int) error) error {
	ctx, stop := untilInterrupted(ctx, os.Interrupt)
	defer stop()
	tick := time.NewTicker(followPause)
	defer tick.Stop()
	told := reader.Overtaken()
	for ctx.Err() == nil {
		e, ok, err := reader.Next()
		told = a.noteOvertaken(reader, told)
		switch {
		case err != nil:
			return err
		case ok && filter.Takes(e):
			// Whoever wrote it a moment ago is taken to live.
			if err := show(e, e.PID); err != nil {
				return err
			}
			continue
		case ok:
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			var none *enroll.NoDeviceError
			if _, err := home.Record(record.DeviceID); errors.As(err, &none) {
				return err
			}
		}
	}
	return nil
}

// noteOvertaken tells a person that lines may be missing, unless that was told as
// often as the reader was overtaken. It returns how often that is.
func (a *app) noteOvertaken(reader *activity.Reader, told int) int {
	n := reader.Overtaken()
	if n > told {
		fmt.Fprintln(a.stderr, foldAll("Lines may be missing: files were rotated away before this command came to read them.", "", columns))
	}
	return n
}

// printEntry writes one line for people, and under it what the owner asked to be
// recorded. running is the pid of the executor that serves the device now, 0 if
// none does.
func (a *app) printEntry(e activity.Entry, running int) error {
	indent := strings.Repeat(" ", activityOutcome)
	var b strings.Builder
	took := ""
	if e.Phase == activity.Ended {
		took = brief(time.Duration(e.DurationMs) * time.Millisecond)
	}
	fmt.Fprintf(&b, "%-15s %-*s %7s %s\n", e.Time.Local().Format("Jan _2 15:04:05"), activityKind, cutTo(shown(string(e.Kind)), activityKind), took,
		foldAll(ending(e, running), indent, columns-activityOutcome))
	texts := e.Paths
	if e.Command != "" {
		texts = []string{"$ " + e.Command}
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "    %s\n", foldAll(cutTo(shown(text), mostTextOnShow), "      ", columns-6))
	}
	_, err := a.stdout.Write([]byte(b.String()))
	return err
}

// cutTo cuts a text to so many characters, of which the last says that it was cut.
func cutTo(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// ending says how an instruction ended, in a few words.
func ending(e activity.Entry, running int) string {
	switch e.Phase {
	case activity.Gap:
		return fmt.Sprintf("%s missing here: the disk did not keep up", plural(int(e.Lost), "line"))
	case activity.Began:
		switch running {
		case e.PID:
			return "running"
		case unknownPID:
			return "began; it cannot be told whether it runs still"
		}
		return "cut off: the executor did not live to see its end"
	}
	words := []string{words(e.Outcome)}
	if e.ExitCode != nil {
		words = []string{fmt.Sprintf("exit %d", *e.ExitCode)}
	}
	if e.BytesIn > 0 {
		words = append(words, size(e.BytesIn)+" in")
	}
	if e.BytesOut > 0 {
		words = append(words, size(e.BytesOut)+" out")
	}
	if e.ProcessesEnded > 0 {
		words = append(words, plural(e.ProcessesEnded, "leftover")+" ended")
	}
	if e.Stuck {
		words = append(words, "stuck in the kernel")
	}
	return strings.Join(words, ", ")
}

// plural is a number and what it counts.
func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// brief is a duration in at most seven characters.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
