package refserver

import (
	"maps"
	"time"
)

// The enrollment budget (§1.1): a property of the lane, not a knob.
const (
	rateBudget = 10
	rateWindow = 60 * time.Second
)

type bucket string

// Issuing and registering are counted apart.
const (
	bucketIssue    bucket = "issue"
	bucketRegister bucket = "register"
)

type rateKey struct {
	bucket   bucket
	identity string
}

type window struct {
	start time.Time
	count int
}

// admit counts one request of identity and returns 0, or the whole seconds to
// wait. An unavailable limiter refuses: one that fails open invites guessing.
func (s *Server) admit(b bucket, identity string) (retryAfter int) {
	if s.limiterDown {
		return 1
	}
	now := s.cfg.Now()
	if now.Sub(s.swept) >= rateWindow { // callers come and go
		maps.DeleteFunc(s.windows, func(_ rateKey, w *window) bool { return now.Sub(w.start) >= rateWindow })
		s.swept = now
	}
	key := rateKey{b, identity}
	w := s.windows[key]
	if w == nil || now.Sub(w.start) >= rateWindow {
		w = &window{start: now}
		s.windows[key] = w
	}
	if w.count++; w.count <= rateBudget {
		return 0
	}
	left := w.start.Add(rateWindow).Sub(now)
	return max(1, int((left+time.Second-1)/time.Second))
}

// SetLimiterUnavailable makes both enrollment endpoints answer as a server
// does that cannot reach its rate limiter.
func (s *Server) SetLimiterUnavailable(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiterDown = down
}
