package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func page(t *testing.T) []Rule {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rules, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// testsIn lists the tests of a package, under whatever build tags.
func testsIn(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	if pkg == "layout" {
		pkg = "."
	}
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = true
			}
		}
	}
	return tests
}

func TestWhatThePageNamesExists(t *testing.T) {
	known := map[string]map[string]bool{}
	for _, r := range page(t) {
		for _, f := range r.Files {
			if _, err := os.Stat(filepath.Join(root, f)); err != nil {
				t.Errorf("line %d: %v", r.Line, err)
			}
		}
		for _, p := range r.Proofs {
			if known[p.Package] == nil {
				known[p.Package] = testsIn(t, p.Package)
			}
			if !known[p.Package][p.Test] {
				t.Errorf("line %d: there is no test %s", r.Line, p)
			}
		}
	}
}

func TestThePageLeavesNoRuleOut(t *testing.T) {
	have := map[string]bool{}
	for _, r := range page(t) {
		have[r.Section] = true
	}
	want := []string{"§1.5", "§1.6", "§3.2", "§3.3", "§3.4", "§3.5", "§4"}
	for n := 1; n <= 15; n++ {
		want = append(want, fmt.Sprintf("R%d", n))
	}
	for n := 1; n <= 10; n++ {
		want = append(want, fmt.Sprintf("§6.%d", n))
	}
	for _, s := range want {
		if !have[s] {
			t.Errorf("there is no row for %s", s)
		}
	}
}

func TestRowsThatProveNothingAreErrors(t *testing.T) {
	for _, row := range []string{
		"| R1 | promise | `file.go` |",
		"| R1 | promise | `file.go` | no test |",
		"| R1 | promise | no file | `pkg.TestX` |",
		"| R1 | promise | `file.go` | `TestX` |",
	} {
		if got, err := Read(strings.NewReader(row)); err == nil {
			t.Errorf("%s: read as %+v", row, got)
		}
	}
}
