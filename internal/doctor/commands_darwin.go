package doctor

import "github.com/sema-agent/device-executor/internal/remedy"

// processNeeds is what starting and ending commands takes.
const processNeeds = "starting processes and reading the process table must be allowed."

// fileSystemOf is the command that says which file system a folder is on: df tells
// the disk, mount its kind.
func fileSystemOf(dir string) string { return "df " + remedy.Quote(dir) + "; mount" }
