package simulation

import (
	"slices"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

func (j *judge) hello(n int64, raw []byte) {
	decoded, err := wire.DecodeDevice(raw, wire.MaxPreAuthFrameBytes)
	h, ok := decoded.(*wire.Hello)
	if err != nil || !ok {
		j.fail("a hello that cannot be read: %v", err)
		return
	}
	l := j.dialled[n]
	if l == nil {
		j.fail("a hello on connection %d before its challenge", n)
		return
	}
	if l.epoch == "" {
		if j.epochs[h.Epoch] {
			j.fail("executor %d has the epoch of an earlier one, %s", l.n, h.Epoch)
		}
		j.epochs[h.Epoch] = true
		l.epoch, l.supports = h.Epoch, h.Supports
	}
	if h.Epoch != l.epoch {
		j.fail("the epoch changed from %s to %s in one life", l.epoch, h.Epoch)
	}
	if !slices.Equal(h.Supports, l.supports) {
		j.fail("supports changed from %v to %v in one life", l.supports, h.Supports)
	}
}

// fencePatience is when a process that does not die may count as dead at the
// earliest: after the grace, and five seconds of a KILL that the kernel keeps pending.
const fencePatience = 7 * time.Second

// fenced looks whether anything runs that should not, now that generationAck came.
func (j *judge) fenced(n int64, c *conn) {
	for id, a := range j.asks {
		if a.proc == nil || a.proc.dead() || c.listed[id] {
			continue
		}
		if since := a.proc.wantedDeadSince(); since.IsZero() || time.Since(since) < fencePatience {
			j.fail("%s still runs at generationAck of connection %d, which does not list it", id, n)
		}
	}
}
