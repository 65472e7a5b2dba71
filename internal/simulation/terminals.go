package simulation

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// result checks that there is one terminal, and that it is true.
func (j *judge) result(f refserver.Frame, a *asked, raw []byte) {
	same := bytes.Replace(raw, []byte(`"gen":"`+string(f.Gen)+`"`), nil, 1)
	if a.result != nil && !(a.forgiven && bytes.Contains(same, []byte(wire.CodeOutcomeUnknown))) {
		if !bytes.Equal(a.result, same) {
			j.fail("%s: a second terminal %.300s after %.300s", a.id, same, a.result)
		}
		return
	}
	a.result = slices.Clone(same)
	decoded, err := wire.DecodeDevice(raw, wire.MaxFrameBytes)
	r, ok := decoded.(*wire.Result)
	if err != nil || !ok {
		j.fail("a result that cannot be read: %v", err)
		return
	}
	switch o := r.Outcome.(type) {
	case wire.CancelledOutcome:
		a.denied = o.State == wire.CancelNotStarted
	case wire.Failure:
		a.denied = o.Code == wire.CodeTargetUnavailable
	}
	if why := j.untrue(a, r.Outcome, f.Conn); why != "" {
		j.fail("%s: answered %s: %s", a.id, same, why)
	}
}

// linger is how long what a command leaves behind may at least go on.
const linger = 900 * time.Millisecond

// untrue says what is wrong with an outcome, given what really happened and the
// connection that it came on.
func (j *judge) untrue(a *asked, o wire.Outcome, on int64) string {
	alive := a.proc != nil && !a.proc.dead()
	leaving := j.dialled[on].leaving
	switch o := o.(type) {
	case wire.ExecOutcome:
		if a.proc == nil {
			return ""
		}
		if !closed(a.proc.exited) || int64(a.proc.ExitCode()) != o.ExitCode {
			return fmt.Sprintf("the command's exit code is %d", a.proc.ExitCode())
		}
		undisturbed := a.cancels == 0 && leaving.IsZero() && (a.ask == nil || time.Since(a.sent) < a.ask.Timeout)
		if rest := a.proc.program.Orphan; a.proc.Ended() > 0 && rest < linger && undisturbed {
			return fmt.Sprintf("what it left behind needed %v more and was ended", rest)
		}
	case wire.CancelledOutcome:
		switch {
		case a.cancels == 0:
			return "nobody cancelled it"
		case alive:
			return "it still runs"
		case o.State == wire.CancelNotStarted && a.starts > 0:
			return "it had started"
		}
	case wire.Failure:
		switch o.Code {
		case wire.CodeTimeout:
			if alive {
				return "it still runs"
			}
			if a.ask != nil && time.Since(a.sent) < a.ask.Timeout {
				return fmt.Sprintf("only %v have passed", time.Since(a.sent))
			}
		case wire.CodeTargetUnavailable:
			switch {
			case a.starts > 0:
				return "it had started"
			case leaving.IsZero() && on == a.sentOn:
				return "nothing kept it from starting"
			}
		case wire.CodeAborted:
			switch {
			case alive:
				return "it still runs"
			case leaving.IsZero():
				return "the executor was not told to leave"
			case time.Since(leaving) < drain:
				return fmt.Sprintf("the drain is only %v old", time.Since(leaving))
			}
		case wire.CodeOutcomeUnknown:
			if !a.diesHard() && !a.forgiven {
				return "all about it can be known"
			}
		default:
			return "nothing that happens here is a reason for this"
		}
	}
	return ""
}

// diesHard reports whether the command may outlast every attempt to end it.
func (a *asked) diesHard() bool {
	return a.proc != nil && (a.proc.program.Term == Lingers || a.proc.program.Term == Undead)
}

// answerPatience is how long after the faults an answer may be owed: as long as a server
// waits after a cancel, and some more.
const answerPatience = 15 * time.Second

// object judges what the reference server has to object to. Some of it is excused
// while the network is against us: then no answer can be in time; and some where the
// executor was made to forget.
func (j *judge) object(v refserver.Violation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch v.Reason {
	case refserver.CancelUnanswered, refserver.TimeoutUnanswered:
		a := j.asks[v.InstructionID]
		owed := a != nil && a.owed && a.ask.Sip == 0 && v.At.Sub(j.calm) > answerPatience
		if a == nil || !a.calm && !owed {
			return
		}
	case refserver.SecondTerminal, refserver.ChunkGap:
		if a := j.asks[v.InstructionID]; a != nil && a.forgiven {
			return
		}
	}
	j.fail("the server objects: %v", v)
}
