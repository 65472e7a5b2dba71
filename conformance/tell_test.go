package conformance

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// Whoever reads a finding knows the guide and not this module.
func TestFindingsAreInTheProtocolsTerms(t *testing.T) {
	for want, a := range map[string]answer{
		`the answer {"ok":true,"kind":"exec","exitCode":3}`:                                   {Settlement: refserver.Settlement{By: refserver.ByResult, Outcome: wire.ExecOutcome{ExitCode: 3}}},
		`the answer {"ok":true,"kind":"cancelled","state":"killed"}`:                          {Settlement: refserver.Settlement{By: refserver.ByResult, Outcome: wire.CancelledOutcome{State: wire.CancelKilled}}},
		`the answer {"ok":false,"errorCode":"not_found","message":"gone"}`:                    {Settlement: refserver.Settlement{By: refserver.ByResult, Outcome: wire.Failure{Code: wire.CodeNotFound, Message: "gone"}}},
		`no answer that counts: no result came within the cancel grace (R11)`:                 {Settlement: refserver.Settlement{By: refserver.ByCancelGrace, Outcome: wire.Failure{Code: wire.CodeOutcomeUnknown}}},
		`no answer that counts: no result came within timeoutMs and the server's grace (R12)`: {Settlement: refserver.Settlement{By: refserver.ByCeiling, Outcome: wire.Failure{Code: wire.CodeOutcomeUnknown}}},
	} {
		if got := tell(a); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	long := answer{Settlement: refserver.Settlement{By: refserver.ByResult, Outcome: wire.Failure{Code: wire.CodeUnknown, Message: strings.Repeat("x", 5000)}}}
	if n := len(tell(long)); n > 400 {
		t.Errorf("%d bytes of a long answer", n)
	}
}

func TestEveryObjectionOfTheServerIsToldInWords(t *testing.T) {
	for file, told := range map[string]func(word string) bool{
		"../refserver/violation.go": func(w string) bool { return objections[refserver.Reason(w)] != "" },
		"../refserver/settle.go":    func(w string) bool { return w == "result" || unanswered[refserver.SettledBy(w)] != "" },
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words := regexp.MustCompile(`(?m)^\t\w+ +(?:Reason|SettledBy) += "(\w+)"`).FindAllSubmatch(b, -1)
		if len(words) < 15 {
			t.Fatalf("%s has %d words", file, len(words))
		}
		for _, w := range words {
			if !told(string(w[1])) {
				t.Errorf("%s of %s is not told in words", w[1], file)
			}
		}
	}
	for _, r := range []wire.FrameRejectReason{wire.ReasonBadShape, wire.ReasonNotJSON} {
		if objections[refserver.Reason(r)] == "" {
			t.Errorf("%s is not told in words", r)
		}
	}
	got := objection(refserver.Violation{Reason: refserver.CancelUnanswered, InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", Detail: "no result"})
	if strings.Contains(got, "connection") || strings.Contains(got, "0 bytes") || !strings.Contains(got, "R11") {
		t.Error(got)
	}
	got = objection(refserver.Violation{Reason: refserver.ChunkChanged, Type: "chunk", Size: 90, Conn: 2, Gen: "7", Seq: 4})
	if want := "[chunk of 90 bytes, connection 2, gen 7, streamSeq 4]"; !strings.Contains(got, want) {
		t.Error(got)
	}
}

// Frames that a row writes past the server's books are shown like all others.
func TestFramesThatARowWritesItselfAreShownWithWhatMatters(t *testing.T) {
	tr := newTrace()
	tr.see(refserver.FromServer, refserver.Frame{Type: "raw", Seq: -1, Conn: 1, Size: 40}, []byte(`{"t":"bye","gen":"4","reason":"revoked"}`))
	tr.see(refserver.FromServer, refserver.Frame{Type: "raw", Seq: -1, Conn: 1, Size: 60},
		[]byte(`{"t":"cancel","gen":"4","instructionId":"ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W"}`))
	tr.see(refserver.FromServer, refserver.Frame{Type: "raw", Seq: -1, Conn: 1, Size: 8}, []byte(`not json`))
	lines := strings.Join(tr.lines(), "\n")
	for _, want := range []string{"← bye ", "gen=4 revoked", "← cancel ", "…8R0S2V4W", "← raw "} {
		if !strings.Contains(lines, want) {
			t.Errorf("without %q:\n%s", want, lines)
		}
	}
}

// A promise of which half was not judged does not pass for one that was.
func TestWhatARowCouldNotJudgeIsSaidBesideItsVerdict(t *testing.T) {
	results := []Result{{Row: Row{ID: "a", Section: "§1"}, Verdict: Pass, Notes: []string{"root may enter every folder"}}}
	var text, asJSON, asXML strings.Builder
	if err := errors.Join(NewPrinter(&text).Row(results[0]), WriteJSON(&asJSON, results), WriteJUnit(&asXML, results, 0)); err != nil {
		t.Fatal(err)
	}
	for _, report := range []string{text.String(), asJSON.String(), asXML.String()} {
		if !strings.Contains(report, "root may enter every folder") {
			t.Errorf("it is not said:\n%s", report)
		}
	}
}
