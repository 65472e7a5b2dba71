package simulation

import (
	"flag"
	"os"
	"testing"

	"github.com/sema-agent/device-executor/internal/process"
)

// How a single schedule is played again.
var (
	seedFlag = flag.Uint64("seed", 0, "play this seed alone (TestSeed, TestRealSeed, TestMinimise)")
	keepFlag = flag.String("keep", "", "of its events, only these: numbers with commas")
	// What scripts/soak orders.
	soakFlag   = flag.Duration("soak", 0, "play seeds for this long (TestSoak)")
	firstFlag  = flag.Uint64("first", 1, "from this seed on")
	stepFlag   = flag.Uint64("step", 1, "every so many")
	groundFlag = flag.String("ground", "virtual", "virtual or real")
)

func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	PlayIfAsked()
	flag.Parse()
	os.Exit(m.Run())
}
