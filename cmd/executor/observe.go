package main

import (
	"log/slog"
	"time"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/activity"
	"github.com/sema-agent/device-executor/wire"
)

// observers passes on to several.
type observers []instructions.Observer

func (all observers) Received(w instructions.Work) {
	for _, o := range all {
		o.Received(w)
	}
}

func (all observers) Started(w instructions.Work, at time.Time) {
	for _, o := range all {
		o.Started(w, at)
	}
}

func (all observers) Ended(w instructions.Work, r instructions.Report) {
	for _, o := range all {
		o.Ended(w, r)
	}
}

// logged writes a line per instruction: ids, kinds, sizes, durations and codes.
type logged struct{ log *slog.Logger }

func (l logged) Received(w instructions.Work) {
	l.log.Debug("instruction received", "instruction", w.ID, "kind", string(w.Kind))
}

func (l logged) Started(w instructions.Work, _ time.Time) {
	l.log.Debug("instruction started", "instruction", w.ID, "kind", string(w.Kind))
}

func (l logged) Ended(w instructions.Work, r instructions.Report) {
	l.log.Info("instruction ended", "instruction", w.ID, "kind", string(w.Kind), "outcome", verdict(r),
		"took", r.Ended.Sub(w.Received).Round(time.Millisecond).String(), "in", r.BytesIn, "out", r.BytesOut, "ended", r.ProcessesEnded)
}

// verdict is an outcome in one word.
func verdict(r instructions.Report) string {
	switch o := r.Outcome.(type) {
	case wire.Failure:
		return string(o.Code)
	case wire.CancelledOutcome:
		return string(o.State)
	}
	if r.Fenced {
		return activity.Fenced
	}
	return activity.OK
}
