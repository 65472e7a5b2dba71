package doctor_test

import (
	"os"
	"testing"

	"github.com/sema-agent/device-executor/internal/process"
)

// The test binary is its own supervisor of commands, as the executor is.
func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	os.Exit(m.Run())
}
