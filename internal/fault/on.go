//go:build faults

package fault

import (
	"os"
	"strings"
	"sync/atomic"
)

// Enabled reports whether this build can be broken at all.
const Enabled = true

// Env is the variable that names the faults in force from the start.
const Env = "SEMA_FAULT"

var inForce atomic.Pointer[map[string]bool]

func init() { Set(strings.Split(os.Getenv(Env), ",")...) }

// On reports whether the named fault is in force.
func On(name string) bool { return (*inForce.Load())[name] }

// Set puts exactly the named faults in force, for the whole process, and returns
// what puts back those that were in force before. Tests that call it must not
// run beside tests that rely on sound code.
func Set(names ...string) (restore func()) {
	next := make(map[string]bool, len(names))
	for _, n := range names {
		if n = strings.TrimSpace(n); n != "" {
			next[n] = true
		}
	}
	before := inForce.Swap(&next)
	return func() { inForce.Store(before) }
}
