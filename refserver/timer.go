package refserver

import "time"

// timer runs a function once, with the server's mutex held, unless stopped
// before: also by Close, which waits for those already running.
type timer struct {
	s       *Server
	t       *time.Timer
	stopped bool
}

// after is called with the mutex held.
func (s *Server) after(d time.Duration, fn func()) *timer {
	t := &timer{s: s}
	if s.closed {
		t.stopped = true
		return t
	}
	s.wg.Add(1)
	s.timers[t] = struct{}{}
	t.t = time.AfterFunc(d, func() {
		defer s.wg.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.stopped {
			return
		}
		t.stopped = true
		delete(s.timers, t)
		fn()
	})
	return t
}

// stop is called with the mutex held; a nil timer is fine. After it, the
// function will not run.
func (t *timer) stop() {
	if t == nil || t.stopped {
		return
	}
	t.stopped = true
	delete(t.s.timers, t)
	if t.t.Stop() {
		t.s.wg.Done()
	}
}

// running reports whether the function is still to run.
func (t *timer) running() bool { return t != nil && !t.stopped }
