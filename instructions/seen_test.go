package instructions

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sema-agent/device-executor/wire"
)

// at makes an id of the protocol's form from a time and a number.
func at(time, n int) string { return fmt.Sprintf("ins_%010d%016d", time, n) }

func TestSeenNeverTakesAKnownIdForNew(t *testing.T) {
	const limit = 100
	s := newSeen(limit)
	ids := make([]string, 0, 10*limit)
	for i := range 10 * limit {
		id := at(i/7, i)
		if s.has(id) || s.mayHave(id) && i/7 > (i-1)/7 {
			t.Fatalf("%s is new, and taken for known", id)
		}
		s.add(id)
		ids = append(ids, id)
		for _, known := range ids {
			if !s.has(known) && !s.mayHave(known) {
				t.Fatalf("after %d ids %s is forgotten", i, known)
			}
		}
		if held := len(s.young) + len(s.old); held > 2*limit {
			t.Fatalf("%d ids are held", held)
		}
	}
	for _, known := range ids[len(ids)-limit:] {
		if !s.has(known) {
			t.Errorf("%s is among the last %d and not known exactly", known, limit)
		}
	}
	if s.mayHave("free form") {
		t.Error("an id without a time is taken for old")
	}
}

func TestAnIdOlderThanTheMemoryIsAnsweredAndNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := map[string]int{}
		b := newBench(t, handlers{wire.KindExec: func(_ context.Context, c *Call) wire.Outcome {
			ran[c.In.InstructionID]++
			return wire.ExecOutcome{}
		}})
		b.d.seen = newSeen(4)
		for i := range 12 {
			b.d.Instruct(ask(at(i, i), wire.KindExec, aCommand))
			b.outcome(at(i, i))
		}
		b.ear.results = map[string][]wire.Outcome{}
		b.d.Instruct(ask(at(0, 0), wire.KindExec, aCommand))
		if f := b.outcome(at(0, 0)).(wire.Failure); f.Code != wire.CodeOutcomeUnknown || !strings.Contains(f.Message, "older") {
			t.Errorf("%+v", f)
		}
		if !b.d.Seen(at(1, 1)) {
			t.Error("Seen says that a forgotten id cannot have run")
		}
		for id, n := range ran {
			if n != 1 {
				t.Errorf("%s ran %d times", id, n)
			}
		}
		b.finish()
	})
}
