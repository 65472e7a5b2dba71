package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether w shows its output to a person at a terminal that
// understands cursor movement.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
