package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/sema-agent/device-executor/internal/doctor"
)

// isTerminal reports whether w shows its output to a person at a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// isTyped reports whether r is a person at a terminal, who ends a line there.
func isTyped(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// movesCursor reports whether w is a terminal that does more than print.
func movesCursor(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// terminalSize is how many columns and rows a terminal has; zero where it does
// not say.
type terminalSize struct{ columns, rows int }

func sizeOf(w io.Writer) terminalSize {
	f, ok := w.(*os.File)
	if !ok {
		return terminalSize{}
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return terminalSize{}
	}
	return terminalSize{columns, rows}
}

// fit cuts a page so that the terminal neither wraps a line of it nor scrolls:
// what is drawn can then be drawn over. The cursor's own row stays free.
func (t terminalSize) fit(page []byte) []byte {
	lines := strings.SplitAfter(strings.TrimSuffix(string(page), "\n"), "\n")
	if most := t.rows - 1; t.rows > 1 && len(lines) > most {
		lines = append(lines[:most-1:most-1], "…")
	}
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\n")
		if runes := []rune(line); t.columns > 0 && len(runes) > t.columns {
			line = string(runes[:t.columns-1]) + "…"
		}
		lines[i] = line + "\n"
	}
	return []byte(strings.Join(lines, ""))
}

// coloured reports whether what goes to w may have colours: to a terminal, unless
// its user does not want any (NO_COLOR).
func (a *app) coloured(w io.Writer) bool {
	return a.getenv("NO_COLOR") == "" && movesCursor(w)
}

// paint colours words for a terminal, or leaves them as they are.
type paint struct{ on bool }

func (p paint) with(code, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string { return p.with("1", s) }

// level colours by how bad something is.
func (p paint) level(l doctor.Level, s string) string {
	switch l {
	case doctor.OK:
		return p.with("32", s)
	case doctor.Warn:
		return p.with("33", s)
	}
	return p.with("1;31", s)
}
