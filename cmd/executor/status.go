package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/holder"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/internal/status"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/service"
)

// watchPause is how often --watch looks.
const watchPause = 500 * time.Millisecond

// deviceStatus is what `status --json` prints for a device. Executor is the
// running executor's own word, absent when none runs.
type deviceStatus struct {
	DeviceID string           `json:"deviceId"`
	Server   string           `json:"server"`
	Running  bool             `json:"running"`
	PID      int              `json:"pid,omitempty"`
	Revoked  bool             `json:"revoked,omitempty"`
	Executor *status.Snapshot `json:"executor,omitempty"`
	Problem  string           `json:"problem,omitempty"`
	leftKey

	// Service is what the service manager knows; absent while an executor runs,
	// or without a service.
	Service *service.State `json:"service,omitempty"`

	holder *holder.Holder
	barred bool   // there can be no service here
	named  string // how commands name the device, see the method of that name
	enroll string // the command that enrolls again
}

func newStatus(a *app) *cobra.Command {
	var device string
	var asJSON, watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "What the running executor is doing",
		Long: `What the running executor is doing: connection and cause, what runs for the
cloud right now, what waits to be acknowledged, and the last trouble with what
to do about it. Works without a network and without a running executor.`,
		Example: "  sema device status --watch",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			home, record, err := a.chosen(device)
			if err != nil {
				return err
			}
			if watch {
				return a.watchStatus(c.Context(), home, record.DeviceID, asJSON)
			}
			s := a.readStatus(c.Context(), record)
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(s)
			}
			_, err = a.stdout.Write(a.renderStatus(s))
			return err
		},
	}
	c.Flags().StringVar(&device, "device", "", deviceFlagHelp)
	c.Flags().BoolVar(&asJSON, "json", false, "print as JSON; with --watch a line per change")
	c.Flags().BoolVar(&watch, "watch", false, "look again until interrupted, redrawing in place")
	return c
}

// readStatus puts together what the lock and the status file say, and what the
// service manager does where nobody runs. A file whose writer is gone is not
// believed.
func (a *app) readStatus(ctx context.Context, r *enroll.Record) deviceStatus {
	s := deviceStatus{DeviceID: r.DeviceID, Server: r.Server.String(), Revoked: r.Revoked(),
		named: a.named(r.DeviceID), enroll: r.Server.EnrollCommand(r.WorkspaceRoot)}
	s.leftKey = a.keyLeftOf(ctx, r)
	if s.holder = held(r.Dir()); s.holder == nil {
		state, err := a.serviceBeside(ctx, r.DeviceID)
		s.barred = barred(state, err) != nil
		if state.Installed || state.Orphaned {
			s.Service = &state
			if err != nil {
				s.Problem = err.Error()
			}
		}
		return s
	}
	s.Running, s.PID, s.Executor = true, s.holder.PID, s.holder.Says
	if s.holder.Trouble != nil {
		s.Problem = s.holder.Trouble.Error()
	}
	return s
}

// watchStatus redraws in place on a terminal, and prints each change elsewhere. It
// ends when the device is enrolled no longer.
func (a *app) watchStatus(ctx context.Context, home *enroll.Home, deviceID string, asJSON bool) error {
	ctx, stop := untilInterrupted(ctx, os.Interrupt)
	defer stop()
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	terminal := movesCursor(a.stdout)
	var last []byte
	var size terminalSize
	for {
		// Anew each time: the server may have revoked the device meanwhile.
		r, err := home.Record(deviceID)
		if err != nil {
			return err
		}
		s := a.readStatus(ctx, r)
		var page []byte
		if asJSON {
			b, err := json.Marshal(s)
			if err != nil {
				return err
			}
			page = append(b, '\n')
		} else {
			page = a.renderStatus(s)
		}
		out := page
		if terminal && !asJSON {
			before := size
			size = sizeOf(a.stdout)
			page = size.fit(page)
			out = redraw(last, page, last != nil && size != before)
		}
		if !bytes.Equal(page, last) {
			if _, err := a.stdout.Write(out); err != nil {
				return err
			}
			last = page
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// redraw moves back over the last page and writes the new one over it. A
// terminal that was resized has moved the last page somewhere: it is cleared.
func redraw(last, page []byte, resized bool) []byte {
	var b bytes.Buffer
	switch n := bytes.Count(last, []byte("\n")); {
	case resized:
		b.WriteString("\x1b[H")
	case n > 0:
		fmt.Fprintf(&b, "\x1b[%dA", n)
	}
	b.WriteString("\x1b[J")
	b.Write(page)
	return b.Bytes()
}

func (a *app) renderStatus(s deviceStatus) []byte {
	var t table
	row := t.row
	row("device", "%s", s.DeviceID)
	row("server", "%s", s.Server)
	switch {
	case s.Revoked:
		row("state", "revoked: the server has ended this device for good")
		if advice := s.remains.Advice(s.named); advice != "" {
			row("key", "%s", s.remains)
			row("", "%s", advice)
		}
		row("", "%s", remedy.Step("Enroll again", s.enroll))
		return t.Bytes()
	case !s.Running:
		s.renderStopped(&t)
		return t.Bytes()
	case s.Executor == nil && s.PID == 0:
		row("state", "running: %s holds this device", s.holder)
		row("", "%s", remedy.Step("See which one it is", s.holder.Command()))
		if s.Problem != "" {
			row("", "%s", s.Problem)
		}
		return t.Bytes()
	case s.Executor == nil:
		row("state", "running (pid %d), has not said yet what it does", s.PID)
		if s.Problem != "" {
			row("", "%s", s.Problem)
		}
		return t.Bytes()
	}
	x := s.Executor
	now := a.now()
	row("state", "%s for %s, pid %d", phaseLine(x.State.Phase, x.State.Cause), age(now, x.State.Since), x.PID)
	if !x.State.RetryAt.IsZero() {
		row("", "next attempt in %s", max(x.State.RetryAt.Sub(now), 0).Round(time.Second))
	}
	if x.Generation != "" {
		row("generation", "%s", x.Generation)
	}
	if len(x.Work) == 0 {
		row("work", "nothing")
	}
	for i, w := range x.Work {
		name := "work"
		if i > 0 {
			name = ""
		}
		doing := "waits"
		if !w.Started.IsZero() {
			doing = "runs for " + age(now, w.Started)
		}
		row(name, "%s %s, %s out", cutTo(shown(w.Kind), activityKind), doing, size(w.BytesOut))
	}
	row("outbox", "%s, %s in %s, %s unacknowledged", plural(x.Outbox.Instructions, "instruction"),
		size(x.Outbox.Bytes), plural(x.Outbox.Chunks, "chunk"), plural(x.Outbox.Results, "result"))
	row("so far", "%s, %s (%d failed), %s in, %s out", plural(int(x.Counters.Connections), "connection"),
		plural(int(x.Counters.Instructions), "instruction"), x.Counters.Failed, size(x.Counters.BytesIn), size(x.Counters.BytesOut))
	for _, id := range x.Stuck {
		row("stuck", "%s: the kernel does not let its processes die", id)
	}
	for _, notice := range x.Notices {
		row("note", "%s", notice)
	}
	if e := x.LastError; e != nil {
		row("last error", "%s ago: %s", age(now, e.At), e.Text)
		switch {
		case e.Run != "":
			row("", "%s", remedy.Step(e.Remedy, e.Run))
		case e.Remedy != "":
			row("", "%s", e.Remedy)
		}
	}
	return t.Bytes()
}

// renderStopped says why nobody serves the device, and how to change that.
func (s *deviceStatus) renderStopped(t *table) {
	advise := func(what string, words ...string) {
		t.row("", "%s", remedy.Step(what, remedy.For(s.named, words...)))
	}
	switch {
	case s.Service == nil:
		t.row("state", "not running")
		advise("Start it", "serve")
		if !s.barred {
			advise("Or in the background, from now on", "service", "install")
		}
	case s.Problem != "":
		t.row("state", "not running, and what its service does is not known:")
		t.row("", "%s", s.Problem)
		advise("See what is wrong", "doctor")
	case s.Service.Restarting:
		t.row("state", "not running; its service starts it again by itself in a moment")
		if s.Service.LastExit != nil {
			t.row("last end", "%s", s.Service.LastExit)
		}
		advise("Its last words", "service", "logs")
	case s.Service.Running:
		t.row("state", "its service is starting it")
		advise("What it says", "service", "logs")
	default:
		t.row("state", "not running; its service is stopped")
		if s.Service.LastExit != nil {
			t.row("last end", "%s", s.Service.LastExit)
		}
		advise("Start it", "service", "start")
		advise("Its last words", "service", "logs")
	}
}

// words makes a name of the closed sets readable.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// phaseLine is a state of the connection in a line. How it came to be up is no
// news.
func phaseLine(phase, cause string) string {
	if cause == "" || phase == string(link.Active) {
		return words(phase)
	}
	return words(phase) + " (" + words(cause) + ")"
}

// age is how long ago something was, as coarse as a person needs it.
func age(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// size is a number of bytes with a unit.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	div, exp := int64(unit), 0
	for n/div >= unit && exp < 4 {
		div *= unit
		exp++
	}
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(div), "KMGTP"[exp])
}
