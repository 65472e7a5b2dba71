// Package doctor finds out what on this machine, or between it and the server,
// keeps a device from working, and how to mend it.
//
// It promises:
//
//   - Each check stands alone. They run side by side, none can hold up another,
//     and all are over within Limit, with or without a network, with or without
//     a running executor.
//   - A finding names the cause, says why it matters and what to do, with the
//     command where there is one. No finding shows a secret.
//   - Nothing is changed. A check that has to try something (a file in the
//     workspace, a command, a connection) takes it back; no hello is ever sent, so
//     a running executor keeps its connection.
package doctor

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// Limit is the most time that Examine takes.
const Limit = 8 * time.Second

// patience is how long a check may take. What is stuck longer than that, such as
// a call on a dead mount, is left behind and said to be stuck.
const patience = Limit - 500*time.Millisecond

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // work goes on, but not as it should
	Fail Level = "fail" // this stops work
)

// Finding is what one check found out.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Why   string `json:"why,omitempty"`  // it matters
	Mend  string `json:"mend,omitempty"` // in words
	Run   string `json:"run,omitempty"`  // the exact command that mends it, or shows more
}

// Device is what was found out about one device.
type Device struct {
	DeviceID string    `json:"deviceId"`
	Server   string    `json:"server,omitempty"`
	Findings []Finding `json:"findings"`
}

// Report is everything that was found out.
type Report struct {
	Machine []Finding `json:"machine"` // of concern to every device
	Devices []Device  `json:"devices"`
}

// Count returns how many findings are of a level.
func (r *Report) Count(l Level) int {
	n := 0
	count := func(findings []Finding) {
		for _, f := range findings {
			if f.Level == l {
				n++
			}
		}
	}
	count(r.Machine)
	for _, d := range r.Devices {
		count(d.Findings)
	}
	return n
}

// ServiceState is what the service manager knows of a device.
type ServiceState struct {
	Installed bool
	// Barred is why this device, which has no service, can have none here, with
	// what to do instead; nil: it can.
	Barred error
	// Orphaned: it is not, and the manager has it all the same.
	Orphaned  bool
	Masked    bool   // its owner has forbidden to start it
	Unit      string // its name there
	Edited    bool   // the service's file is not as it was installed
	Enabled   bool   // it starts by itself
	Lingering *bool  // it outlives the user's last session; nil: no such thing here
	Running   bool
	// Restarting: it ended, and is started again by itself in a moment.
	Restarting bool
	LastExit   string // how it ended last, "" if it did not
}

// Doctor examines this machine. All members but Service are needed.
type Doctor struct {
	Stores    enroll.Stores
	Getenv    func(string) string
	Environ   []string // of this process, NAME=value each
	Now       func() time.Time
	UserAgent string
	// Transport makes the way to servers, as enroll.NewTransport does.
	Transport func() (*http.Transport, error)
	// FindShell is instructions.FindShell.
	FindShell func(chosen string, env []string) (string, error)
	// Service asks the service manager about a device; nil: there is none.
	Service func(ctx context.Context, deviceID string) (ServiceState, error)
}

// Examine examines the machine and these devices; broken are those whose record
// cannot be read.
func (d *Doctor) Examine(ctx context.Context, records []*enroll.Record, broken []*enroll.BrokenRecordError) *Report {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	env := instructions.WithoutSecrets(d.Environ)
	machine := begin(ctx, []check{
		{"shell", func(context.Context) []Finding { return d.shell(env) }},
		{"PATH", func(ctx context.Context) []Finding { return d.path(ctx, env) }},
		{"processes", func(ctx context.Context) []Finding { return d.processes(ctx, env) }},
		{"temporary", func(ctx context.Context) []Finding { return temporary(ctx) }},
	})
	devices := make([]func() []Finding, len(records))
	for i, r := range records {
		devices[i] = begin(ctx, d.ofDevice(r))
	}

	report := &Report{Machine: machine(), Devices: []Device{}}
	for i, r := range records {
		report.Devices = append(report.Devices, Device{DeviceID: r.DeviceID, Server: r.Server.String(), Findings: devices[i]()})
	}
	for _, b := range broken {
		report.Devices = append(report.Devices, Device{DeviceID: b.DeviceID, Findings: []Finding{{
			Check: "record", Level: Fail, What: b.Error(), Why: "Without its record this device cannot be served.", Mend: b.Advice(),
		}}})
	}
	if len(report.Devices) == 0 {
		report.Machine = append(report.Machine, Finding{
			Check: "record", Level: Fail, What: "no device is enrolled on this machine",
			Why: "A server can use this machine only once it is a device of it.",
			Run: remedy.Command("enroll", "--server", "URL"),
		})
	}
	return report
}

// ofDevice are the checks of one device.
func (d *Doctor) ofDevice(r *enroll.Record) []check {
	if r.Revoked() {
		// It is gone for good: nothing else about it matters any more.
		return []check{{"revoked", func(ctx context.Context) []Finding { return d.revoked(ctx, r) }}}
	}
	checks := []check{
		{"record", func(context.Context) []Finding { return record(r) }},
		{"folder", func(context.Context) []Finding { return folder(r) }},
		{"key", func(ctx context.Context) []Finding { return d.key(ctx, r) }},
		{"lock", func(context.Context) []Finding { return d.lock(r) }},
		{"server", func(ctx context.Context) []Finding { return d.server(ctx, r) }},
		{"workspace", func(ctx context.Context) []Finding { return workspace(ctx, r) }},
	}
	if d.Service != nil {
		checks = append(checks, check{"service", func(ctx context.Context) []Finding { return d.service(ctx, r) }})
	}
	return checks
}

type check struct {
	name string
	run  func(ctx context.Context) []Finding
}

// begin starts checks. The function it returns waits for what they find, in
// their order, but not for longer than ctx.
func begin(ctx context.Context, checks []check) func() []Finding {
	found := make([]chan []Finding, len(checks))
	for i, c := range checks {
		found[i] = make(chan []Finding, 1) // nobody may be left to take it
		go func() { found[i] <- c.run(ctx) }()
	}
	return func() []Finding {
		var all []Finding
		for i, c := range checks {
			select {
			case f := <-found[i]:
				all = append(all, f...)
				continue
			default:
			}
			select {
			case f := <-found[i]:
				all = append(all, f...)
			case <-after(ctx):
				all = append(all, Finding{
					Check: c.name, Level: Fail, What: fmt.Sprintf("this check is stuck: it was not over within %s", patience),
					Why:  "A call to the system does not come back, as on a disk or a network mount that is gone.",
					Mend: "Look for a mount that does not answer (`df` hangs on it), then run this again.",
				})
			}
		}
		return all
	}
}

// after is done a moment after ctx is, so that checks which heed ctx can say
// what they were waiting for.
func after(ctx context.Context) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() {
		time.AfterFunc(Limit-patience, func() { close(late) })
	})
	return late
}
