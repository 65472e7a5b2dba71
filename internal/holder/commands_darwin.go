package holder

import "github.com/sema-agent/device-executor/internal/remedy"

// whoHas is the command that says who has a file open.
func whoHas(path string) string { return "lsof " + remedy.Quote(path) }
