package process

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	RunIfSupervisor()
	beHostIfAsked()
	beLimitedHostIfAsked()
	os.Exit(m.Run())
}
