package main

import (
	"bytes"
	"fmt"
)

// table is a page of names and what is to be said of each.
type table struct{ bytes.Buffer }

// row adds a line, folded below itself. Without a name it goes on with what the
// row above is about.
func (t *table) row(name, format string, args ...any) {
	const indent = "           "
	fmt.Fprintf(t, "%-10s %s\n", name, foldAll(fmt.Sprintf(format, args...), indent, columns-len(indent)))
}
