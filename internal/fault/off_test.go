//go:build !faults

package fault_test

import (
	"testing"

	"github.com/sema-agent/device-executor/internal/fault"
)

func TestAReleasedBuildCannotBeBroken(t *testing.T) {
	t.Setenv("SEMA_FAULT", "outbox: no bounds")
	if fault.Enabled || fault.On("outbox: no bounds") {
		t.Error("it can")
	}
}
