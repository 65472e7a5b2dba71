package process

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	RunIfSupervisor()
	beHostIfAsked()
	os.Exit(m.Run())
}
