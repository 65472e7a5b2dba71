package link

import "time"

const (
	// pulse is how often the wall clock is looked at and the outbox may think of
	// what has to be sent again.
	pulse = time.Second
	// jump is how far the wall clock may stray from the monotonic one between
	// two looks. The monotonic clock stands still while a machine sleeps.
	jump = 2 * time.Second
)

// wallWatch notices that the machine slept.
type wallWatch struct {
	now  func() time.Time
	wall time.Time // without a monotonic part
	mono time.Time
}

func newWallWatch(now func() time.Time) *wallWatch {
	return &wallWatch{now: now, wall: now().Round(0), mono: time.Now()}
}

// jumped reports whether the wall clock jumped since the last call.
func (w *wallWatch) jumped() bool {
	wall, mono := w.now().Round(0), time.Now()
	strayed := wall.Sub(w.wall) - mono.Sub(w.mono)
	w.wall, w.mono = wall, mono
	return strayed.Abs() > jump
}
