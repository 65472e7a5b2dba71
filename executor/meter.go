package executor

import (
	"context"
	"sync/atomic"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/wire"
)

// metered counts what a handler puts out while it runs, for status.
func (r *report) metered(h instructions.Handler) instructions.Handler {
	return func(ctx context.Context, call *instructions.Call) wire.Outcome {
		if n := r.meter(call.In.InstructionID); n != nil && call.Out != nil {
			call.Out = counted{call.Out, n}
		}
		return h(ctx, call)
	}
}

type counted struct {
	instructions.Output
	bytes *atomic.Int64
}

// Append implements instructions.Output.
func (c counted) Append(ctx context.Context, kind wire.ChunkKind, data []byte) error {
	err := c.Output.Append(ctx, kind, data)
	if err == nil {
		c.bytes.Add(int64(len(data)))
	}
	return err
}
