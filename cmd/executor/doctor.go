package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/doctor"
	"github.com/sema-agent/device-executor/internal/remedy"
)

func newDoctor(a *app) *cobra.Command {
	var device string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "What is wrong on this machine, and how to mend it",
		Long: `Examine this machine, its devices and the way to their servers: record, folder,
key, lock, service, workspace, shell, PATH, process control, and the connection
layer by layer (DNS, proxy, network, TLS, HTTP, WebSocket, clock). Each finding
says why it matters and what mends it. Nothing is changed, a running executor
keeps its connection, and it is over within eight seconds, with or without a
network.

All devices are examined unless one is named. Exit code 1 if anything found
would stop work.`,
		Example: "  sema device doctor\n  sema device doctor --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			records, broken, err := a.patients(device)
			if err != nil {
				return err
			}
			progress := newProgress(a, "Examining this machine and the way to the server")
			report := a.doctor().Examine(c.Context(), records, broken)
			progress.stop()
			if asJSON {
				err = json.NewEncoder(a.stdout).Encode(report)
			} else {
				err = a.printReport(report)
			}
			if err == nil && report.Count(doctor.Fail) > 0 {
				err = exitWith(exitUnexpected, nil) // the report says why
			}
			return err
		},
	}
	c.Flags().StringVar(&device, "device", "", "the `ID` of the only device to examine")
	jsonFlag(c, &asJSON)
	return c
}

// patients are the devices to examine.
func (a *app) patients(device string) (records []*enroll.Record, broken []*enroll.BrokenRecordError, err error) {
	home, err := enroll.OpenHome(a.getenv)
	if err != nil {
		return nil, nil, err
	}
	if device == "" {
		return home.Records()
	}
	record, err := home.Record(device)
	var bad *enroll.BrokenRecordError
	switch {
	case errors.As(err, &bad):
		return nil, []*enroll.BrokenRecordError{bad}, nil
	case err != nil:
		return nil, nil, err
	}
	return []*enroll.Record{record}, nil, nil
}

func (a *app) doctor() *doctor.Doctor {
	return &doctor.Doctor{
		Stores:    a.stores(),
		Getenv:    a.getenv,
		Environ:   os.Environ(),
		Now:       a.now,
		UserAgent: userAgent(),
		Transport: func() (*http.Transport, error) { return enroll.NewTransport(a.getenv) },
		FindShell: instructions.FindShell,
		Service:   a.serviceState,
	}
}

func (a *app) serviceState(ctx context.Context, deviceID string) (doctor.ServiceState, error) {
	s, err := a.serviceBeside(ctx, deviceID)
	state := doctor.ServiceState{
		Installed: s.Installed, Orphaned: s.Orphaned, Masked: s.Masked, Unit: s.Service, Barred: barred(s, err), Edited: s.Edited, Enabled: s.Enabled, Lingering: s.Lingering,
		Running: s.Running, Restarting: s.Restarting,
	}
	if s.LastExit != nil {
		state.LastExit = s.LastExit.String()
	}
	if state.Barred != nil {
		return state, nil
	}
	return state, err
}

// findingText is the column where the text of a finding begins.
const findingText = 18

// printReport shows a report to a person.
func (a *app) printReport(r *doctor.Report) error {
	p := paint{on: a.coloured(a.stdout)}
	var b strings.Builder
	b.WriteString(p.bold("This machine") + "\n")
	write := func(f doctor.Finding) {
		f.Mend, f.Run = a.shortened(f.Mend), a.shortened(f.Run)
		writeFinding(&b, p, f)
	}
	for _, f := range r.Machine {
		write(f)
	}
	for _, d := range r.Devices {
		b.WriteString("\n" + p.bold(d.DeviceID) + "\n")
		for _, f := range d.Findings {
			write(f)
		}
	}
	b.WriteByte('\n')
	switch fails, warns := r.Count(doctor.Fail), r.Count(doctor.Warn); {
	case fails > 0 && warns > 0:
		fmt.Fprintf(&b, "%s in the way of work; %s.\n", things(fails), plural(warns, "warning"))
	case fails > 0:
		fmt.Fprintf(&b, "%s in the way of work.\n", things(fails))
	case warns > 0:
		fmt.Fprintf(&b, "Nothing is in the way of work; %s.\n", plural(warns, "warning"))
	default:
		b.WriteString("All is well.\n")
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

func things(n int) string {
	if n == 1 {
		return "1 thing is"
	}
	return plural(n, "thing") + " are"
}

// writeFinding writes one finding: level, check, text, and under it why it
// matters, what to do, and the command by itself, so that it can be copied.
func writeFinding(b *strings.Builder, p paint, f doctor.Finding) {
	indent := strings.Repeat(" ", findingText)
	text := func(s string) string { return foldAll(shown(s), indent, columns-findingText) }
	run := func(command string) {
		const lead = "    $ "
		fmt.Fprintf(b, "%s%s\n", lead, foldCommand(shown(command), strings.Repeat(" ", len(lead)), columns-len(lead)))
	}
	level := fmt.Sprintf("%-4s", map[doctor.Level]string{doctor.OK: "ok", doctor.Warn: "warn", doctor.Fail: "FAIL"}[f.Level])
	fmt.Fprintf(b, "  %s %-9s  %s\n", p.level(f.Level, level), f.Check, text(f.What))
	if f.Level != doctor.OK && f.Why != "" {
		fmt.Fprintf(b, "%s%s\n", indent, text(f.Why))
	}
	if f.Mend != "" {
		for line := range strings.SplitSeq(f.Mend, "\n") {
			if command, ok := strings.CutPrefix(line, remedy.Indent); ok {
				run(command)
			} else {
				fmt.Fprintf(b, "%s%s\n", indent, text(line))
			}
		}
	}
	if f.Run != "" {
		run(f.Run)
	}
}
