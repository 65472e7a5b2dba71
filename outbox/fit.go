package outbox

import (
	"errors"
	"strings"

	"github.com/sema-agent/device-executor/wire"
)

// widestGen is longer than any generation a server counts up to.
var widestGen = wire.Gen(strings.Repeat("9", 40))

// fit returns the outcome if a frame can carry it, else a Failure that says why
// not. A result that was once found to fit is never changed.
func fit(id string, outcome wire.Outcome) wire.Outcome {
	_, err := wire.AppendDevice(nil, &wire.Result{Gen: widestGen, InstructionID: id, DeviceSeq: wire.MaxSafeInteger, Outcome: outcome})
	var size *wire.SizeError
	switch stat, _ := outcome.(wire.StatOutcome); {
	case err == nil:
		return outcome
	case !errors.As(err, &size):
		return wire.Failf(wire.CodeUnknown, "the answer cannot be sent: %v", err)
	case len(stat.Entries) > 0:
		return wire.Failf(wire.CodeUnknown, "the answer is too large to be sent: its %d entries take more than the %d bytes that one frame may have", len(stat.Entries), size.Limit)
	default:
		return wire.Failf(wire.CodeUnknown, "the answer is too large to be sent: %d bytes or more, of at most %d that one frame may have", size.Size, size.Limit)
	}
}
