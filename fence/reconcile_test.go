package fence_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

type reconcileInput struct {
	Alive []struct {
		ID           string
		Chunks       int
		Acknowledged int64
		Finished     bool
	}
	Seen       []string
	Pending    []string
	Watermarks map[string]int64
}

type reconcileExpect struct {
	Keep, End, NeverSeen, Released, Results []string
	ResendFrom                              map[string]int64
}

// TestReconcileVectors runs the table through Reconcile, and through a real outbox
// what is sent again.
func TestReconcileVectors(t *testing.T) {
	cases, err := testvectors.Cases[reconcileInput, reconcileExpect]("reconcile.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			box := outbox.New(outbox.Config{})
			box.Resume("1", nil, nil)
			var alive []string
			seen := map[string]bool{}
			for _, a := range c.Input.Alive {
				alive = append(alive, a.ID)
				seen[a.ID] = true
				l := box.Open(a.ID)
				for i := range a.Chunks {
					if err := l.Append(t.Context(), wire.ChunkData, []byte{byte(i)}); err != nil {
						t.Fatal(err)
					}
					for _, ok := box.Next(nil); ok; _, ok = box.Next(nil) {
					}
					if int64(i) <= a.Acknowledged {
						box.AckChunk(a.ID, int64(i))
					}
				}
				if a.Finished {
					l.Finish(wire.ReadOutcome{})
				}
			}
			for _, id := range c.Input.Seen {
				seen[id] = true
			}
			for _, ok := box.Next(nil); ok; _, ok = box.Next(nil) {
			}
			box.Suspend()

			plan := fence.Reconcile(alive, func(id string) bool { return seen[id] }, c.Input.Pending)
			for _, list := range []struct {
				name      string
				got, want []string
			}{
				{"keep", plan.Keep, c.Expect.Keep},
				{"end", plan.End, c.Expect.End},
				{"neverSeen", plan.NeverSeen, c.Expect.NeverSeen},
				{"released", plan.Released, c.Expect.Released},
			} {
				if !slices.Equal(list.got, list.want) {
					t.Errorf("%s: got %v, want %v", list.name, list.got, list.want)
				}
			}

			box.Resume("2", c.Input.Pending, c.Input.Watermarks)
			from := map[string]int64{}
			var results []string
			for frame, ok := box.Next(nil); ok; frame, ok = box.Next(nil) {
				f, err := wire.DecodeDevice(frame, wire.MaxFrameBytes)
				if err != nil {
					t.Fatal(err)
				}
				switch f := f.(type) {
				case *wire.Chunk:
					if _, ok := from[f.InstructionID]; !ok {
						from[f.InstructionID] = f.StreamSeq
					}
					if slices.Contains(results, f.InstructionID) {
						t.Errorf("%s: chunk %d after the result", f.InstructionID, f.StreamSeq)
					}
				case *wire.Result:
					results = append(results, f.InstructionID)
				}
			}
			if !maps.Equal(from, c.Expect.ResendFrom) {
				t.Errorf("resendFrom: got %v, want %v", from, c.Expect.ResendFrom)
			}
			if !slices.Equal(results, c.Expect.Results) {
				t.Errorf("results: got %v, want %v", results, c.Expect.Results)
			}
		})
	}
}
