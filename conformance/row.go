package conformance

import (
	"slices"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Row is one promise of the guide.
type Row struct {
	ID      string      // stable; what --only takes and what broken executors are matched with
	Section string      // of the guide
	Promise string      // in one sentence
	Needs   []wire.Kind // not applicable to an executor that does not declare all of them

	run   func(*Case)
	limit time.Duration // of the whole row; 0: defaultLimit
}

// defaultLimit is far above what any row takes on a busy machine, so that
// reaching it means that something hangs.
const defaultLimit = 90 * time.Second

// patience is how long a row may take.
func (r *Row) patience() time.Duration {
	if r.limit == 0 {
		return defaultLimit
	}
	return r.limit
}

// Rows returns all rows in the guide's order.
func Rows() []Row {
	return slices.Concat(enrollRows, connectRows, kindRows, readRows, fileRows, writeRows, payloadRows, streamRows,
		onceRows, resumeRows, resendRows, fenceRows, cancelRows, timeoutRows, byeRows, heartbeatRows, leaveRows, securityRows)
}

// Verdict is how a row came out.
type Verdict string

// The verdicts.
const (
	Pass          Verdict = "pass"
	Fail          Verdict = "fail"
	NotApplicable Verdict = "not applicable"
	NotJudged     Verdict = "not judged" // the suite was told to stop first
)

// Result is a row's verdict over one executor.
type Result struct {
	Row     Row
	Verdict Verdict
	// Findings says what was wrong, or why the row is not applicable.
	Findings []string
	// Notes say what of the promise was not judged, as this system or this user has no
	// way to.
	Notes []string
	// Frames is the exchange of a failed row, one line a frame, the last ones
	// if there were many: types, kinds, sizes and numbers, never content.
	Frames []string
	// Output is the end of what the executor printed, of a failed row.
	Output []string
	// Crowded is what was found beside other rows, of a row that did not fail when
	// it was judged again alone.
	Crowded []string
	Took    time.Duration
}
