package service

import (
	"fmt"
	"slices"
)

// finalCodes are the exit codes of `serve` after which another start would end
// the same way: usage, no such device, held by another executor, revoked,
// superseded, too old. 0 is an end that was asked for.
var finalCodes = []int{0, 2, 3, 4, 5, 6, 7}

// Final reports whether an executor that ended with this exit code is not
// started again. systemd knows the codes from the unit. launchd only tells 0
// from the rest, so there `serve` is given the flag [ZeroWhenFinalFlag].
func Final(code int) bool { return slices.Contains(finalCodes, code) }

// meanings are the exit codes of `serve` in words, and those of systemd for a
// program that it could not run.
var meanings = map[int]string{
	0:   "stopped as asked",
	1:   "unexpected error",
	2:   "wrong usage",
	3:   "no such device",
	4:   "another executor on this machine serves the device",
	5:   "revoked; enroll again",
	6:   "superseded by another executor elsewhere",
	7:   "too old for the server; update it",
	9:   "the private key cannot be read",
	203: "the program could not be run",
}

// Meaning returns an exit code with what it stands for.
func Meaning(code int) string {
	if words, ok := meanings[code]; ok {
		return fmt.Sprintf("exit code %d, %s", code, words)
	}
	return fmt.Sprintf("exit code %d", code)
}

// Flags of `serve` that exist for service managers.
const (
	// ZeroWhenFinalFlag makes serve end with 0 in place of any final code.
	ZeroWhenFinalFlag = "exit-zero-when-final"
	// LogFileFlag names a size-capped file that serve logs to, for managers
	// that do not cap what they collect.
	LogFileFlag = "log-file"
)
