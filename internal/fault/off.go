//go:build !faults

package fault

// Enabled reports whether this build can be broken at all.
const Enabled = false

// On reports whether the named fault is in force: never, in this build.
func On(string) bool { return false }
