package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// line is one of the trace.
type line struct {
	at   time.Duration
	text string
}

func (j *judge) note(format string, args ...any) {
	j.trace = append(j.trace, line{time.Since(j.begin), fmt.Sprintf(format, args...)})
}

// Note puts a line into the trace.
func (j *judge) Note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(format, args...)
}

// lines is the trace in order of time. What falls on one nanosecond has no order
// of its own, so the text decides.
func (j *judge) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.SortStableFunc(j.trace, func(a, b line) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	out := make([]string, len(j.trace))
	for i, l := range j.trace {
		out[i] = fmt.Sprintf("%14v %s", l.at, l.text)
	}
	return out
}
