package service

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestAProgramRunsWithTheAddedEnvironment(t *testing.T) {
	var out bytes.Buffer
	err := Programs{}.Run(t.Context(), Command{Argv: []string{"sh", "-c", `echo "$ADDED"`}, Env: []string{"ADDED=value"}}, &out)
	if err != nil || out.String() != "value\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestAFailingProgramIsNamedWithItsComplaint(t *testing.T) {
	err := Programs{}.Run(t.Context(), Command{Argv: []string{"sh", "-c", "echo oh dear >&2; exit 3"}}, &bytes.Buffer{})
	var failed *CommandError
	if !errors.As(err, &failed) || failed.Code != 3 || failed.Complaint != "oh dear" || !strings.HasPrefix(err.Error(), "sh -c ") {
		t.Errorf("%v", err)
	}
	err = Programs{}.Run(t.Context(), Command{Argv: []string{"no-such-program"}}, &bytes.Buffer{})
	if !errors.As(err, &failed) || failed.Code != -1 || !missing(err) {
		t.Errorf("%v", err)
	}
	long := Programs{}.Run(t.Context(), Command{Argv: []string{"sh", "-c", "yes | head -c 1000000 >&2; exit 1"}}, &bytes.Buffer{})
	if !errors.As(long, &failed) || len(failed.Complaint) > maxComplaint {
		t.Errorf("%d bytes of complaint", len(failed.Complaint))
	}
}

// Following a log may take weeks, and journalctl may have something to say all along.
func TestAComplaintWithoutEndTakesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := Programs{}.Run(t.Context(), Command{Argv: []string{"sh", "-c", "yes | head -c 50000000 >&2; exit 1"}}, &bytes.Buffer{})
	runtime.ReadMemStats(&after)
	var failed *CommandError
	if !errors.As(err, &failed) || !strings.HasPrefix(failed.Complaint, "y\ny\n") {
		t.Errorf("%v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 10<<20 {
		t.Errorf("%d MiB for it", took>>20)
	}
}

func TestAProgramThatDoesNotAnswerIsGivenUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := Programs{}.Run(ctx, Command{Argv: []string{"sleep", "100"}}, &bytes.Buffer{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
