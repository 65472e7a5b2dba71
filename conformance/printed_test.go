package conformance

import (
	"os"
	"strings"
	"testing"
)

// Whoever takes it meanwhile may not get to run on a busy machine.
func TestWhatWasPrintedBeforeAnEndIsToldHoweverBusyTheMachineIs(t *testing.T) {
	t.Parallel()
	log, err := os.CreateTemp(t.TempDir(), printedPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := &printed{r: r, log: log, over: make(chan struct{})} // and nobody takes
	for _, want := range []string{"last words\n", strings.Repeat("x", 60_000) + "\n"} {
		if _, err := w.WriteString(want); err != nil {
			t.Fatal(err)
		}
		if text, lost := p.all(); !strings.HasSuffix(text, want) || lost != 0 {
			t.Errorf("%d bytes are told, %d are not; the last %d are missing", len(text), lost, len(want))
		}
	}
}
