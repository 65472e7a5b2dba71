package executor_test

import (
	"os"
	"testing"

	"github.com/sema-agent/device-executor/internal/process"
)

func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	if text := os.Getenv(specVariable); text != "" {
		os.Exit(serveForParent(text))
	}
	os.Exit(m.Run())
}
