// Command check reads what `go test -json` writes, shows what `go test` would have
// shown, and fails if a test that docs/rules.md relies on failed, was skipped, or
// did not run.
//
//	go test -json ./... | go run ./internal/rules/check docs/rules.md
//
// Unless SEMA_TEST_REQUIRE_ALL is set, a skipped test is named and no more: not
// every machine has all that the tests can use.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sema-agent/device-executor/internal/rules"
)

const module = "github.com/sema-agent/device-executor"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | check docs/rules.md")
		os.Exit(2)
	}
	f, err := os.Open(os.Args[1])
	if err == nil {
		defer f.Close()
		err = check(f, os.Stdin, os.Stdout, os.Getenv("SEMA_TEST_REQUIRE_ALL") != "")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// check passes readable output on and compares what ran with the page.
func check(page, events io.Reader, out io.Writer, requireAll bool) error {
	table, err := rules.Read(page)
	if err != nil {
		return err
	}
	ended, failed := watch(events, out)
	missing := map[string]string{}
	for _, r := range table {
		for _, p := range r.Proofs {
			switch how := ended[p]; {
			case how == "pass":
			case how == "skip" && !requireAll:
				fmt.Fprintf(out, "rules: %s was skipped; it proves %s\n", p, r.Section)
			case how == "":
				missing[p.String()] = "did not run"
			default:
				missing[p.String()] = how
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(out, "rules: %s: %s\n", name, missing[name])
	}
	switch {
	case failed:
		return fmt.Errorf("tests failed")
	case len(missing) > 0:
		return fmt.Errorf("%d tests that docs/rules.md relies on did not pass", len(missing))
	}
	fmt.Fprintf(out, "rules: every test that docs/rules.md relies on ran (%d promises)\n", len(table))
	return nil
}

// watch shows the events as `go test` would: the packages' own lines, and the
// output of tests that failed. ended has pass, fail or skip of each test.
func watch(events io.Reader, out io.Writer) (ended map[rules.Proof]string, failed bool) {
	ended = map[rules.Proof]string{}
	said := map[string]*strings.Builder{}
	lines := bufio.NewReader(events)
	for {
		raw, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(raw, &e) != nil {
			_, _ = out.Write(raw) // of the build, or of go itself
		} else {
			key := e.Package + "\x00" + e.Test
			switch e.Action {
			case "output", "build-output":
				if e.Test == "" {
					if e.Output != "PASS\n" {
						_, _ = io.WriteString(out, e.Output)
					}
					break
				}
				if said[key] == nil {
					said[key] = &strings.Builder{}
				}
				said[key].WriteString(e.Output)
			case "pass", "skip", "fail":
				if e.Action == "fail" {
					failed = true
					if said[key] != nil {
						_, _ = io.WriteString(out, said[key].String())
					}
				}
				delete(said, key)
				ended[rules.Proof{Package: short(e.Package), Test: e.Test}] = e.Action
			case "build-fail":
				failed = true
			}
		}
		if err != nil {
			break
		}
	}
	// A package that crashed leaves tests without an end; what they said may say why.
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if failed {
			_, _ = io.WriteString(out, said[key].String())
		}
	}
	return ended, failed
}

// short is a package's name on the page.
func short(pkg string) string {
	if pkg == module {
		return "layout"
	}
	return strings.TrimPrefix(pkg, module+"/")
}
