package process

import (
	"flag"
	"os"
	"testing"
)

// rounds repeats what races; scripts/torture raises it.
var rounds = flag.Int("torture.rounds", 1, "rounds of each torture")

func TestMain(m *testing.M) {
	RunIfSupervisor()
	beHostIfAsked()
	os.Exit(m.Run())
}
