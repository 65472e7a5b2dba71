package activity

import (
	"slices"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Filter chooses lines. The zero value takes all.
type Filter struct {
	Since    time.Time   // zero: from the beginning
	Kinds    []wire.Kind // none: all
	Outcomes []string    // none: all; Failed stands for every one but OK
}

// Failed is the filter's word for every outcome but OK.
const Failed = "failed"

// Outcomes returns what a Filter's outcomes can be.
func Outcomes() []string {
	all := []string{OK, Failed, NotStarted, Killed, Fenced}
	for _, c := range wire.ErrorCodes() {
		all = append(all, string(c))
	}
	return all
}

// Takes reports whether e is chosen. Gaps belong to whatever is shown around
// them, so only their time counts.
func (f Filter) Takes(e Entry) bool {
	switch {
	case e.Time.Before(f.Since):
		return false
	case e.Phase == Gap:
		return true
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, e.Kind):
		return false
	case len(f.Outcomes) == 0:
		return true
	}
	return slices.Contains(f.Outcomes, e.Outcome) ||
		e.Phase == Ended && e.Outcome != OK && slices.Contains(f.Outcomes, Failed)
}

// Unended tells the beginnings that have no end yet from those that have one: it
// returns entries without the latter, in their order.
func Unended(entries []Entry) []Entry {
	type instruction struct {
		pid int
		id  string
	}
	over := map[instruction]bool{}
	for _, e := range entries {
		if e.Phase == Ended {
			over[instruction{e.PID, e.ID}] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
		return e.Phase == Began && over[instruction{e.PID, e.ID}]
	})
}
