package refserver

import (
	"fmt"
	"path"

	"github.com/sema-agent/device-executor/wire"
)

// result takes a terminal answer of an instruction in flight (§3.3).
func (c *Call) result(k *socket, f *wire.Result, v Violation) {
	if f.DeviceSeq <= c.deviceSeq { // R6
		// It is acknowledged when it is in the books and no sooner: until then the
		// instruction is listed, and a device that had let go of it would have to
		// answer anew.
		c.finishIfDelivered()
		return
	}
	if c.terminal != nil {
		n := v
		n.Reason, n.Refused, n.Detail = SecondTerminal, false, "another deviceSeq for an instruction that was answered"
		k.note(n)
	}
	c.deviceSeq, c.terminal = f.DeviceSeq, f
	for _, t := range c.deadlines() { // the device has answered; the rest is the consumer's time
		t.stop()
	}
	if r, detail := c.broken(f.Outcome); r != "" {
		v.Reason, v.Detail = r, detail
		k.note(v)
		c.fault(r)
		k.release(c.id)
		c.s.writeOff(c, ByBadResult, detail)
		return
	}
	if detail := surplus(c.what.Kind, f.Outcome); detail != "" {
		n := v
		n.Reason, n.Refused, n.Detail = OutcomeSurplus, false, detail
		k.note(n)
	}
	c.finishIfDelivered()
}

// broken judges an outcome against its instruction and its stream. Failed and
// cancelled ones are always believed.
func (c *Call) broken(o wire.Outcome) (Reason, string) {
	if !wire.Fits(c.what.Kind, o) {
		return OutcomeKind, fmt.Sprintf("a %s outcome does not answer %s", outcomeWord(o), c.what.Kind)
	}
	switch o.(type) {
	case wire.Failure, wire.CancelledOutcome:
		return "", ""
	}
	if detail := incomplete(o); detail != "" {
		return OutcomeMembers, detail
	}
	st := c.settlement.Stream
	if len(c.early) > 0 {
		return StreamIncomplete, fmt.Sprintf("the result came while chunk %d was missing", c.next)
	}
	if st.Fault != "" {
		return st.Fault, "the output stream is not well-formed"
	}
	e, isExec := o.(wire.ExecOutcome)
	switch {
	case !isExec:
	case st.Exits == 0:
		return ExitMissing, "a successful command without an exit chunk"
	case st.ExitCode != e.ExitCode:
		return ExitCodeMismatch, fmt.Sprintf("the exit chunk says %d, the result %d", st.ExitCode, e.ExitCode)
	}
	return "", ""
}

// incomplete checks members beyond their presence: receipts and canonical
// paths are real, so absolute and normal.
func incomplete(o wire.Outcome) string {
	switch o := o.(type) {
	case wire.WriteOutcome:
		if !realPath(o.CanonicalPath) {
			return "the receipt's canonicalPath is not an absolute, normal path"
		}
	case wire.StatOutcome:
		if o.CanonicalPath != "" && !realPath(o.CanonicalPath) {
			return "canonicalPath is not an absolute, normal path"
		}
		infos := o.Entries
		if o.Info != nil {
			infos = append([]wire.FileInfo{*o.Info}, infos...)
		}
		for _, i := range infos {
			if i.Path == "" || i.Size < 0 {
				return "a file's info has no path or a negative size"
			}
		}
	}
	return ""
}

func realPath(p string) bool { return path.IsAbs(p) && path.Clean(p) == p }

// surplus names what a stat outcome carries that was not asked for (§3.3).
func surplus(kind wire.Kind, o wire.Outcome) string {
	st, ok := o.(wire.StatOutcome)
	if !ok || kind == wire.KindStatBatch {
		return ""
	}
	for _, m := range []struct {
		kind wire.Kind
		name string
		set  bool
	}{
		{wire.KindFileInfo, "info", st.Info != nil},
		{wire.KindListDir, "entries", st.Entries != nil},
		{wire.KindExists, "existsValue", st.ExistsValue != nil},
		{wire.KindCanonicalPath, "canonicalPath", st.CanonicalPath != ""},
		{wire.KindReadLink, "linkTarget", st.LinkTarget != nil},
	} {
		if m.set && m.kind != kind {
			return m.name + " was not asked for"
		}
	}
	return ""
}
