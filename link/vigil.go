package link

import "time"

// vigil judges whether the peer is still there, by the last sign of life and by the
// pings sent since.
type vigil struct {
	c        *connection
	interval time.Duration // of pings, as far as silence is judged by it
	timer    *time.Timer
	deadline time.Time     // when timer is due
	probing  time.Duration // how long a probe waits; 0: none is under way
	probed   time.Time     // when it began
}

// serverPatience is how many intervals a server waits for any frame (R14).
const serverPatience = 3

// minWatch is the shortest interval that silence is judged by: below, every pause of
// a busy machine would pass for the peer's end.
const minWatch = 500 * time.Millisecond

// How long a probe waits for a sign of life, within one interval.
const (
	minProbe = time.Second
	maxProbe = 5 * time.Second
)

func newVigil(c *connection) *vigil {
	interval := max(c.interval, minWatch)
	return &vigil{c: c, interval: interval, timer: time.NewTimer(2 * interval), deadline: time.Now().Add(2 * interval)}
}

func (v *vigil) stop() { v.timer.Stop() }

func (v *vigil) due() <-chan time.Time { return v.timer.C }

func (v *vigil) again(d time.Duration) {
	v.timer.Reset(d)
	v.deadline = time.Now().Add(d)
}

// probe asks for a sign of life at once.
func (v *vigil) probe() {
	if v.probing > 0 {
		return
	}
	v.probing = min(max(v.interval, minProbe), maxProbe)
	v.probed = time.Now()
	v.c.owe(&v.c.pingOwed, pingOrder{})
	v.again(v.probing)
}

// judge is called when the timer is due.
func (v *vigil) judge() (out outcome, over bool) {
	interval, now := v.interval, time.Now()
	// A timer this late means that the process was frozen: what arrived meanwhile
	// has not been read yet, so silence proves nothing.
	if v.probing == 0 && now.Sub(v.deadline) > max(interval/2, minProbe/2) {
		v.probe()
		return outcome{}, false
	}
	silence := v.c.socket.Silence()
	if v.probing > 0 {
		if silence > now.Sub(v.probed) {
			return outcome{kind: retry, cause: CauseProbeFailed, err: errProbeFailed}, true
		}
		v.probing = 0
	}
	if wait := 2*interval - silence; wait > 0 {
		v.again(wait)
		return outcome{}, false
	}
	// Pings wait while a frame is being written; a peer that was not asked need
	// not have spoken. But one that has neither taken a frame nor said anything for
	// three intervals has given us up by now (R14), if it is there at all.
	clock := v.c.clock()
	asked := v.c.asked.Load()
	if asked == 0 || asked < clock-int64(silence) {
		wait := interval
		if began := v.c.writing.Load(); began != 0 {
			stuck := min(silence, time.Duration(clock-began))
			if wait = serverPatience*interval - stuck; wait <= 0 {
				return outcome{kind: retry, cause: CausePeerSilent, err: errPeerSilent}, true
			}
			wait = min(wait, interval)
		}
		v.again(wait)
		return outcome{}, false
	}
	if wait := interval - time.Duration(clock-asked); wait > 0 {
		v.again(wait)
		return outcome{}, false
	}
	return outcome{kind: retry, cause: CausePeerSilent, err: errPeerSilent}, true
}
