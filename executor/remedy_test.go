package executor

import (
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/link"
)

func TestWhatACommandMendsIsSaidWithTheCommandAsItIsPasted(t *testing.T) {
	server, err := enroll.ParseServer("http://sema.example:8080/x", true)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{DeviceID: "dev 1", Server: server, WorkspaceRoot: "/my code"}
	for cause, want := range map[link.Cause]string{
		link.CauseDialFailed:     "sema device doctor --device 'dev 1'",
		link.CauseEnrollmentGone: "sema device enroll --server http://sema.example:8080/x --allow-insecure --workspace '/my code'",
		link.CauseRevoked:        "sema device enroll --server http://sema.example:8080/x --allow-insecure --workspace '/my code'",
		link.CauseLaneOff:        "",
		link.CauseDraining:       "",
	} {
		words, run := c.mend(cause)
		if run != want {
			t.Errorf("%s: run %q, want %q", cause, run, want)
		}
		if run != "" && (words == "" || strings.HasSuffix(words, ".")) {
			t.Errorf("%s: %q does not lead to its command", cause, words)
		}
	}
	if words, _ := c.mend(link.CauseLaneOff); words == "" {
		t.Error("a lane that is switched off has no advice")
	}
}
