package simulation

import (
	"flag"
	"os"
	"testing"

	"github.com/sema-agent/device-executor/internal/process"
)

// How a single schedule is played again.
var (
	seedFlag = flag.Uint64("seed", 0, "play this seed alone (TestSeed, TestMinimise)")
	keepFlag = flag.String("keep", "", "of its events, only these: numbers with commas")
)

func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	flag.Parse()
	os.Exit(m.Run())
}
