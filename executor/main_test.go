package executor_test

import (
	"os"
	"testing"

	"github.com/sema-agent/device-executor/internal/process"
)

func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	os.Exit(m.Run())
}
