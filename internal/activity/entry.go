package activity

import (
	"strings"
	"time"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/wire"
)

// Phase says what a line is about.
type Phase string

// The phases.
const (
	Began Phase = "began" // a command has started
	Ended Phase = "ended" // an instruction is over
	Gap   Phase = "gap"   // Lost lines are missing before this one
)

// Outcomes that are not error codes of the protocol.
const (
	OK         = "ok"
	NotStarted = string(wire.CancelNotStarted)
	Killed     = string(wire.CancelKilled)
	Fenced     = "fenced" // ended because the server no longer counts on it; nothing was answered
)

// Entry is one line.
type Entry struct {
	Phase          Phase     `json:"phase"`
	Time           time.Time `json:"time"` // when the instruction arrived; of a gap, when it was noticed
	PID            int       `json:"pid"`  // of the executor
	ID             string    `json:"id,omitempty"`
	RootSessionID  string    `json:"rootSessionId,omitempty"`
	Kind           wire.Kind `json:"kind,omitempty"`
	WaitedMs       int64     `json:"waitedMs,omitempty"`   // from arrival to its start, or to its end if it never started
	DurationMs     int64     `json:"durationMs,omitempty"` // from its start to its end
	BytesIn        int64     `json:"bytesIn,omitempty"`    // of payload
	BytesOut       int64     `json:"bytesOut,omitempty"`   // of output
	Outcome        string    `json:"outcome,omitempty"`    // ok, not_started, killed, fenced, or an error code
	ExitCode       *int64    `json:"exitCode,omitempty"`
	ProcessesEnded int       `json:"processesEnded,omitempty"` // left behind by the command and ended with it
	Stuck          bool      `json:"stuck,omitempty"`          // answered for; its call is stuck in the kernel
	Command        string    `json:"command,omitempty"`        // only where the owner asked for it
	Paths          []string  `json:"paths,omitempty"`          // only where the owner asked for it
	Lost           int64     `json:"lost,omitempty"`           // of a gap
}

const (
	maxIDBytes = 256 // of an id that the server chose, as kept
	maxPaths   = 16  // of one instruction, as kept
)

// describe fills in what is known of an instruction from the beginning.
func describe(w instructions.Work, pid int, texts bool) Entry {
	e := Entry{
		Time:          w.Received.UTC().Truncate(time.Millisecond),
		PID:           pid,
		ID:            cut(w.ID),
		RootSessionID: cut(w.RootSessionID),
		Kind:          wire.Kind(cut(string(w.Kind))),
	}
	if !texts {
		return e
	}
	switch a := w.Args.(type) {
	case wire.ExecArgs:
		e.Command = cutText(a.Command)
	case wire.PathArgs:
		e.Paths = []string{a.Path}
	case wire.ReadLinesArgs:
		e.Paths = []string{a.Path}
	case wire.WriteArgs:
		e.Paths = []string{a.Path}
	case wire.DirArgs:
		e.Paths = []string{a.Path}
	case wire.StatBatchArgs:
		e.Paths = append(e.Paths, a.Paths[:min(len(a.Paths), maxPaths)]...)
	}
	for i, p := range e.Paths {
		e.Paths[i] = cutText(p)
	}
	return e
}

func began(w instructions.Work, at time.Time, pid int, texts bool) Entry {
	e := describe(w, pid, texts)
	e.Phase = Began
	e.WaitedMs = at.Sub(w.Received).Milliseconds()
	return e
}

func ended(w instructions.Work, r instructions.Report, pid int, texts bool) Entry {
	e := describe(w, pid, texts)
	e.Phase = Ended
	if r.Started.IsZero() {
		e.WaitedMs = r.Ended.Sub(w.Received).Milliseconds()
	} else {
		e.WaitedMs = r.Started.Sub(w.Received).Milliseconds()
		e.DurationMs = r.Ended.Sub(r.Started).Milliseconds()
	}
	e.BytesIn, e.BytesOut = r.BytesIn, r.BytesOut
	e.ProcessesEnded, e.Stuck = r.ProcessesEnded, r.Stuck
	switch o := r.Outcome.(type) {
	case wire.Failure:
		e.Outcome = string(o.Code)
	case wire.CancelledOutcome:
		e.Outcome = string(o.State)
	case wire.ExecOutcome:
		e.Outcome, e.ExitCode = OK, &o.ExitCode
	default:
		e.Outcome = OK
	}
	if r.Fenced {
		e.Outcome, e.ExitCode = Fenced, nil
	}
	return e
}

// cutText bounds a command's text, or a path: a copy of what is kept of it, since
// the whole would wait for the disk with it.
func cutText(s string) string { return strings.Clone(wire.CutMessage(s)) }

// cut bounds a name that the server chose.
func cut(s string) string {
	if len(s) > maxIDBytes {
		s = s[:maxIDBytes]
	}
	return strings.ToValidUTF8(strings.Clone(s), "�")
}
