// Command executor is `sema`: it lets a cloud coding agent use this machine
// through one outbound connection. See `sema device --help`.
package main

import (
	"os"

	"github.com/sema-agent/device-executor/internal/process"
)

func main() {
	// A supervisor of one command is this same binary under another hat; it
	// must take that hat before anything else runs.
	process.RunIfSupervisor()
	os.Exit(run(os.Args[1:], system()))
}
