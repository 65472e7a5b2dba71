package doctor

import "github.com/sema-agent/device-executor/internal/remedy"

// processNeeds is what starting and ending commands takes.
const processNeeds = "/proc must be mounted, and starting processes allowed."

// holderOf is the command that says who has a file open.
func holderOf(path string) string { return "fuser -v " + remedy.Quote(path) }

// fileSystemOf is the command that says which file system a folder is on.
func fileSystemOf(dir string) string { return "df -T " + remedy.Quote(dir) }
