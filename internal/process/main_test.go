package process

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	RunIfSupervisor()
	os.Exit(m.Run())
}
