package outbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sema-agent/device-executor/wire"
)

// widestGen is longer than any generation a server counts up to.
var widestGen = wire.Gen(strings.Repeat("9", 40))

// fit returns the outcome if a frame can carry it, else a Failure that says why
// not, and the size of that frame at most. A result that was once found to fit is
// never changed.
func fit(id string, outcome wire.Outcome) (wire.Outcome, int) {
	frame, err := wire.AppendDevice(nil, &wire.Result{Gen: widestGen, InstructionID: id, DeviceSeq: wire.MaxSafeInteger, Outcome: outcome})
	if err == nil {
		return outcome, len(frame)
	}
	failure := wire.Failf(wire.CodeUnknown, "the answer cannot be sent: %v", err)
	var size *wire.SizeError
	if errors.As(err, &size) {
		what := fmt.Sprintf("%d bytes or more", size.Size)
		if stat, _ := outcome.(wire.StatOutcome); len(stat.Entries) > 0 {
			what = fmt.Sprintf("%d entries", len(stat.Entries))
		}
		failure = wire.Failf(wire.CodeUnknown, "the answer is too large to be sent: %s do not fit in the %d bytes that one frame may have", what, size.Limit)
	}
	return failure, len(id) + len(failure.Message)
}
