package wire

import (
	"fmt"
	"slices"
)

// outcome writes the terminal answer of a result with the members §3.3 names
// for its kind, and of a stat only those that were asked for.
func (e *encoder) outcome(o Outcome) {
	e.check.in = "outcome."
	defer func() { e.check.in = "" }()
	switch o := o.(type) {
	case ExecOutcome:
		e.raw(`{"ok":true,"kind":"exec"`)
		e.integer(`,"exitCode":`, o.ExitCode)
		if t := o.Truncated; t != nil {
			e.raw(`,"truncated":`)
			e.boolean(`{"stdout":`, t.Stdout)
			e.boolean(`,"stderr":`, t.Stderr)
			e.raw("}")
		}
	case ReadOutcome:
		e.raw(`{"ok":true,"kind":"read"`)
	case StatOutcome:
		e.stat(o)
	case WriteOutcome:
		e.raw(`{"ok":true,"kind":"write"`)
		e.filled(`,"canonicalPath":`, o.CanonicalPath)
		if o.Inode != "" {
			e.text(`,"inode":`, o.Inode)
		}
		if o.Created != nil {
			e.boolean(`,"created":`, *o.Created)
		}
	case VoidOutcome:
		e.raw(`{"ok":true,"kind":"void"`)
	case CancelledOutcome:
		e.raw(`{"ok":true,"kind":"cancelled"`)
		if !slices.Contains(CancelStates(), o.State) {
			e.fail("state", outsideSet)
		}
		e.text(`,"state":`, string(o.State))
	case Failure:
		e.raw(`{"ok":false`)
		if !slices.Contains(ErrorCodes(), o.Code) {
			e.fail("errorCode", outsideSet)
		}
		e.text(`,"errorCode":`, string(o.Code))
		e.text(`,"message":`, CutMessage(o.Message))
	default:
		e.raw("{")
		e.fail("kind", fmt.Sprintf("%T is no outcome", o))
	}
	e.raw("}")
}

func (e *encoder) stat(o StatOutcome) {
	e.raw(`{"ok":true,"kind":"stat"`)
	if o.Info != nil {
		e.raw(`,"info":`)
		e.fileInfo(o.Info)
	}
	if o.Entries != nil {
		e.raw(`,"entries":[`)
		for i := range o.Entries {
			if e.full() {
				return
			}
			if i > 0 {
				e.raw(",")
			}
			e.fileInfo(&o.Entries[i])
		}
		e.raw("]")
	}
	if o.ExistsValue != nil {
		e.boolean(`,"existsValue":`, *o.ExistsValue)
	}
	if o.CanonicalPath != "" {
		e.text(`,"canonicalPath":`, o.CanonicalPath)
	}
	if t := o.LinkTarget; t != nil && t.IsLink {
		e.text(`,"linkTarget":`, t.Target)
	} else if t != nil {
		e.raw(`,"linkTarget":null`)
	}
}

func (e *encoder) fileInfo(f *FileInfo) {
	e.text(`{"path":`, f.Path)
	if !f.Kind.known() {
		e.fail("kind", outsideSet)
	}
	e.text(`,"kind":`, string(f.Kind))
	e.integer(`,"size":`, f.Size)
	e.integer(`,"mtimeMs":`, f.MtimeMs)
	if f.Mode != nil {
		e.integer(`,"mode":`, *f.Mode)
	}
	e.raw("}")
}
