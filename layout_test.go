// Package layout_test holds the house to its plan: which package may import
// which.
package layout_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sema-agent/device-executor/"

// storeys lists the packages from top to bottom: each may import only packages
// below it, and any leaf.
var storeys = []string{
	"internal/simulation",
	"internal/bench",
	"cmd/executor",
	"service",
	"conformance",
	"refserver",
	"executor",
	"link",
	"enroll",
	"instructions",
	"fence",
	"outbox",
	"stream",
	"handshake",
	"wire",
	"testvectors",
}

// leaves are the internal packages: a leaf imports of this module only what is
// listed for it.
var leaves = map[string][]string{
	"internal/activity": {"instructions", "internal/regular", "wire"},
	"internal/doctor": {"enroll", "fence", "instructions", "internal/files", "internal/holder", "internal/loginenv", "internal/process",
		"internal/remedy", "internal/status", "link", "wire"},
	"internal/fault":           {},
	"internal/remedy":          {},
	"internal/regular":         {},
	"internal/holder":          {"fence", "internal/regular", "internal/remedy", "internal/status"},
	"internal/status":          {"internal/regular", "wire"},
	"internal/process":         {"internal/fault", "internal/process/lineage", "wire"},
	"internal/process/lineage": {},
	"internal/files":           {"internal/fault", "internal/files/place", "internal/files/posix", "wire"},
	"internal/files/place":     {"internal/fault", "internal/files/posix", "wire"},
	"internal/files/posix":     {"internal/fault", "wire"},
	"internal/loginenv":        {},
	"internal/caplog":          {},
	"internal/rules":           {},
	"internal/rules/check":     {"internal/rules"},
	"scripts/deb":              {},
	"internal/logind":          {},
	"internal/userunit":        {},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) map[string]listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]listed{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

// ours returns what p imports of this module, without the module's prefix.
func (p listed) ours() []string {
	var own []string
	for _, i := range p.Imports {
		if rest, ok := strings.CutPrefix(i, module); ok {
			own = append(own, rest)
		}
	}
	return own
}

func TestImportsPointDownwards(t *testing.T) {
	for name, p := range packages(t) {
		from := slices.Index(storeys, name)
		if from < 0 {
			continue
		}
		for _, imported := range p.ours() {
			if strings.HasPrefix(imported, "internal/") {
				continue
			}
			to := slices.Index(storeys, imported)
			if to <= from {
				t.Errorf("%s imports %s, which does not stand below it", name, imported)
			}
		}
	}
}

func TestEveryPackageHasItsPlace(t *testing.T) {
	for name, p := range packages(t) {
		if slices.Contains(storeys, name) {
			continue
		}
		allowed, ok := leaves[name]
		if !ok {
			if len(p.Imports) > 0 {
				t.Errorf("%s has no place in the layout: add it to storeys or leaves, and to CONTRIBUTING.md", name)
			}
			continue
		}
		for _, imported := range p.ours() {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s; a leaf may import of this module only %v", name, imported, allowed)
			}
		}
	}
}

// The reference server must not agree with the executor by sharing its code.
func TestTheReferenceServerSharesOnlyTheWire(t *testing.T) {
	for _, imported := range packages(t)["refserver"].ours() {
		if imported != "wire" {
			t.Errorf("refserver imports %s; it may share nothing with the executor but wire", imported)
		}
	}
}

// Only link, enroll and what stands above them know that a network exists.
func TestTheLowerHouseKnowsNoNetwork(t *testing.T) {
	for name, p := range packages(t) {
		lower := slices.Index(storeys, name) > slices.Index(storeys, "enroll") || name == "internal/files"
		if !lower {
			continue
		}
		for _, i := range p.Imports {
			if i == "net/http" || strings.HasPrefix(i, "github.com/coder/websocket") {
				t.Errorf("%s imports %s", name, i)
			}
		}
	}
}
