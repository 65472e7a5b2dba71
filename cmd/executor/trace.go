package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/refserver"
)

// frameTrace shows the frames of a trial: kinds, sizes and numbers, never content.
type frameTrace struct {
	now   func() time.Time
	start time.Time

	mu sync.Mutex
	w  io.Writer
}

func newFrameTrace(w io.Writer, now func() time.Time) *frameTrace {
	return &frameTrace{now: now, start: now(), w: w}
}

// show is a refserver.Config.Trace.
func (t *frameTrace) show(dir refserver.Direction, f refserver.Frame, _ []byte) {
	arrow := "->" // to the device
	if dir == refserver.FromDevice {
		arrow = "<-"
	}
	line := fmt.Sprintf("%8.3fs %s %-13s %7d B", t.now().Sub(t.start).Seconds(), arrow, f.Type, f.Size)
	if f.Kind != "" {
		line += " " + f.Kind
	}
	if f.Seq >= 0 {
		line += fmt.Sprintf(" #%d", f.Seq)
	}
	if f.Bytes > 0 {
		line += fmt.Sprintf(" (%d bytes)", f.Bytes)
	}
	if f.InstructionID != "" {
		line += " …" + f.InstructionID[max(0, len(f.InstructionID)-6):]
	}
	if f.Refused != "" {
		line += " REFUSED " + string(f.Refused)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.w, line) // a reader that went away costs the trace, nothing else
}
