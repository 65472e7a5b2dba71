package refserver

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"
)

// token is one enrollment token; the plaintext is not kept.
type token struct {
	identity string
	expires  time.Time
	pubkey   string // that used it; "" while unused
	deviceID string
}

func digestOf(plaintext string) [sha256.Size]byte { return sha256.Sum256([]byte(plaintext)) }

// serveTokens issues an enrollment token (§1.1 step 1).
func (s *Server) serveTokens(w http.ResponseWriter, r *http.Request) {
	identity, refused := s.admitRequest(r, bucketIssue)
	if refused != nil {
		refused.write(w)
		return
	}
	if _, refused := readBody(r, true, nil); refused != nil {
		refused.write(w)
		return
	}
	plaintext, expires := s.issueToken(identity)
	writeJSON(w, http.StatusOK, map[string]any{
		"token":     plaintext,
		"expiresAt": instant(expires),
		"ttlSec":    int64(s.cfg.TokenTTL / time.Second),
	})
}

// IssueToken issues an enrollment token to identity, as the HTTP call does.
func (s *Server) IssueToken(identity string) string {
	plaintext, _ := s.issueToken(identity)
	return plaintext
}

func (s *Server) issueToken(identity string) (plaintext string, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b [32]byte
	s.random(b[:])
	plaintext = base64.RawURLEncoding.EncodeToString(b[:])
	expires = s.cfg.Now().Add(s.cfg.TokenTTL)
	s.tokens[digestOf(plaintext)] = &token{identity: identity, expires: expires}
	return plaintext, expires
}

// admitRequest is what both enrollment endpoints decide before they look at a
// body: the lane, the caller, the rate.
func (s *Server) admitRequest(r *http.Request, b bucket) (identity string, refused *failure) {
	if s.cfg.Disabled {
		return "", &failure{status: http.StatusNotImplemented, code: "capability.device_lane_required",
			message: "this deployment does not run the device lane"}
	}
	identity, ok := s.cfg.Identify(r)
	if !ok {
		return "", &failure{status: http.StatusForbidden, code: "auth.forbidden",
			message: "the credential carries no verified identity"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait := s.admit(b, identity); wait > 0 {
		return "", &failure{status: http.StatusTooManyRequests, code: "limit.rate_exceeded",
			message: "too many enrollment requests", retryAfter: wait}
	}
	return identity, nil
}
