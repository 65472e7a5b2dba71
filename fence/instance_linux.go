package fence

import (
	"bytes"
	"os"
	"strconv"
)

// bootID names the boot of this machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b)), err
}

// startOf is when the process with this number started, in clock ticks since the
// boot; none if it is not alive, or not ours to see.
func startOf(pid int) (start uint64, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name before the last parenthesis may contain anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const state, began = 0, 19
	if len(fields) <= began || bytes.ContainsAny(fields[state], "ZX") { // a zombie is dead
		return 0, false
	}
	start, err = strconv.ParseUint(string(fields[began]), 10, 64)
	return start, err == nil
}
