package doctor

import "github.com/sema-agent/device-executor/internal/remedy"

// processNeeds is what starting and ending commands takes.
const processNeeds = "/proc must be mounted, and starting processes allowed."

// fileSystemOf is the command that says which file system a folder is on.
func fileSystemOf(dir string) string { return "df -T " + remedy.Quote(dir) }
