package main

import (
	"strings"
	"testing"
)

const onePromise = "| R1 | it runs once | `a.go` | `link.TestIt` |\n"

func TestOnlyATestThatRanAndPassedIsAProof(t *testing.T) {
	pkg := `"Package":"` + module + `/link"`
	for name, c := range map[string]struct {
		events, says string
		all, good    bool
	}{
		"passed":              {`{"Action":"pass",` + pkg + `,"Test":"TestIt"}`, "ran (1 promises)", true, true},
		"failed":              {`{"Action":"output",` + pkg + `,"Test":"TestIt","Output":"why\n"}` + "\n" + `{"Action":"fail",` + pkg + `,"Test":"TestIt"}`, "why\n", false, false},
		"skipped":             {`{"Action":"skip",` + pkg + `,"Test":"TestIt"}`, "link.TestIt: skip", true, false},
		"skipped as it may":   {`{"Action":"skip",` + pkg + `,"Test":"TestIt"}`, "link.TestIt was skipped", false, true},
		"another one":         {`{"Action":"pass",` + pkg + `,"Test":"TestOther"}`, "link.TestIt: did not run", false, false},
		"another package":     {`{"Action":"pass","Package":"` + module + `/fence","Test":"TestIt"}`, "did not run", false, false},
		"nothing":             {``, "did not run", false, false},
		"a failure elsewhere": {`{"Action":"pass",` + pkg + `,"Test":"TestIt"}` + "\n" + `{"Action":"fail",` + pkg + `}`, "", false, false},
		"a build that failed": {`{"Action":"build-output","Output":"x.go:1: no\n"}` + "\n" + `{"Action":"build-fail"}`, "x.go:1: no", false, false},
	} {
		var out strings.Builder
		err := check(strings.NewReader(onePromise), strings.NewReader(c.events), &out, c.all)
		if (err == nil) != c.good || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %v, said %q", name, err, out.String())
		}
	}
}

func TestPassingTestsAreQuiet(t *testing.T) {
	var out strings.Builder
	events := `{"Action":"output","Package":"p","Test":"TestX","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestX"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t1s\n"}
`
	if _, failed := watch(strings.NewReader(events), &out); failed || out.String() != "ok  \tp\t1s\n" {
		t.Errorf("failed %t, said %q", failed, out.String())
	}
}
