// Package rules reads docs/rules.md, which says for every promise of the protocol
// which file keeps it and which tests prove it.
//
// Its test holds the page to the source; the program in check holds a run of the
// tests to the page.
package rules

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Rule is one row.
type Rule struct {
	Line    int
	Section string // R1 to R15, or §…
	Promise string
	Files   []string // relative to the repository
	Proofs  []Proof
}

// Proof names a test.
type Proof struct {
	Package string // relative to the repository; "layout" is the repository's own folder
	Test    string
}

func (p Proof) String() string { return p.Package + "." + p.Test }

var quoted = regexp.MustCompile("`([^`]+)`")

// Read reads the page's table.
func Read(r io.Reader) ([]Rule, error) {
	var rules []Rule
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		row, ok := strings.CutPrefix(lines.Text(), "| ")
		if !ok || strings.HasPrefix(row, "§ |") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(row, " |"), " | ")
		if len(cells) != 4 {
			return nil, fmt.Errorf("line %d: %d cells, want 4: section, promise, files, tests", n, len(cells))
		}
		rule := Rule{Line: n, Section: cells[0], Promise: cells[1]}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			rule.Files = append(rule.Files, m[1])
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			pkg, test, ok := strings.Cut(m[1], ".")
			if !ok {
				return nil, fmt.Errorf("line %d: %q is not of the form package.Test", n, m[1])
			}
			rule.Proofs = append(rule.Proofs, Proof{pkg, test})
		}
		if len(rule.Files) == 0 || len(rule.Proofs) == 0 || rule.Promise == "" {
			return nil, fmt.Errorf("line %d: a promise needs a file and a test", n)
		}
		rules = append(rules, rule)
	}
	return rules, lines.Err()
}
