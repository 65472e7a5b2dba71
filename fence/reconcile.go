package fence

import "github.com/sema-agent/device-executor/internal/fault"

// Plan is what a helloAck means for the work at hand (§1.5, R2).
type Plan struct {
	Keep      []string // alive here and listed: goes on, after its watermark
	End       []string // alive here, not listed: end it, say nothing
	NeverSeen []string // listed, but never arrived here: it cannot have run
	Released  []string // listed, but its result was given up here
}

// Reconcile compares what is alive here (running, waiting, or holding a result that
// is not acknowledged) with what the server lists. seen tells whether this process
// ever received an id. Keep and End are in the order of alive, the others in that
// of pending; an id is named once, and an empty one never.
func Reconcile(alive []string, seen func(id string) bool, pending []string) Plan {
	var p Plan
	here := make(map[string]bool, len(alive))
	listed := make(map[string]bool, len(pending))
	for _, id := range pending {
		listed[id] = true
	}
	for _, id := range alive {
		switch {
		case id == "" || here[id]:
			continue
		case listed[id] || fault.On("fence: keep what is not listed"):
			p.Keep = append(p.Keep, id)
		default:
			p.End = append(p.End, id)
		}
		here[id] = true
	}
	for _, id := range pending {
		switch {
		case id == "" || here[id]:
			continue
		case seen(id):
			p.Released = append(p.Released, id)
		default:
			p.NeverSeen = append(p.NeverSeen, id)
		}
		here[id] = true
	}
	return p
}
