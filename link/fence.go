package link

import (
	"context"
	"slices"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// fence settles everything of older generations, opens the lane and answers for
// what cannot be here (§1.5, R2, R10). It returns the ids of instructions that
// count as fenced although the kernel has not let them die. If ctx ends first, the
// lane stays shut.
func (c *connection) fence(ctx context.Context) (stuck []string) {
	work, outbox := c.l.cfg.Work, c.l.cfg.Outbox
	alive := work.Inflight()
	for _, id := range outbox.Holding() {
		if !slices.Contains(alive, id) {
			alive = append(alive, id)
		}
	}
	if fault.On("link: generationAck does not wait for the fence") {
		c.control <- &wire.GenerationAck{Gen: c.gen}
	}
	plan := fence.Reconcile(alive, work.Seen, c.ack.PendingInstructions)
	if len(plan.End) > 0 {
		c.l.cfg.Log.Info("the server no longer lists this work: ending it silently", "instructions", plan.End)
		for _, id := range plan.End {
			outbox.Drop(id) // first, so that nothing waits for room to speak
		}
		// What has proved immortal once is not waited for on every connection.
		known := func(id string) bool { return slices.Contains(c.l.stuck, id) }
		stuck = slices.DeleteFunc(slices.Clone(plan.End), func(id string) bool { return !known(id) })
		if mortal := slices.DeleteFunc(plan.End, known); len(mortal) > 0 {
			limit, cancel := context.WithTimeout(ctx, fenceLimit)
			stuck = append(stuck, work.End(limit, mortal)...)
			cancel()
		}
		if ctx.Err() != nil {
			return stuck
		}
	}
	c.l.stuck = stuck
	work.SetMaxInflight(int(min(max(c.ack.MaxInflight, 1), maxMaxInflight)))
	outbox.Resume(c.gen, c.ack.PendingInstructions, c.ack.ChunkWatermarks)
	// What was kept has a voice, unless Resume gave its result up as too old or an
	// earlier fence, which did not come to its end, has silenced it.
	held := outbox.Holding()
	for _, id := range plan.Keep {
		if !slices.Contains(held, id) && !fault.On("link: what lost its voice is not answered") {
			plan.Released = append(plan.Released, id)
		}
	}
	if !fault.On("link: generationAck does not wait for the fence") {
		c.control <- &wire.GenerationAck{Gen: c.gen}
	}
	if fault.On("link: two generationAcks") {
		c.control <- &wire.GenerationAck{Gen: c.gen}
	}
	// These wait in the outbox until the writer has sent generationAck.
	if fault.On("link: what never came is not answered") {
		plan.NeverSeen = nil
	}
	for _, id := range plan.NeverSeen {
		work.Answer(id, wire.Failf(wire.CodeTargetUnavailable,
			"this executor never received the instruction, so it never started"))
	}
	for _, id := range plan.Released {
		work.Answer(id, wire.Failf(wire.CodeOutcomeUnknown,
			"this executor worked on the instruction and has already given up its outcome"))
	}
	return stuck
}

// maxMaxInflight bounds a server's maxInflight.
const maxMaxInflight = 1 << 16
