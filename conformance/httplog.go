package conformance

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Paths of the HTTP calls (§1.1).
const (
	capabilitiesPath = "/v1/capabilities"
	tokenPath        = "/v1/devices/enroll-tokens"
	enrollPath       = "/v1/devices/enroll"
)

// httpCall is one HTTP request and its answer.
type httpCall struct {
	at     time.Time
	path   string
	body   string
	status int
	answer string
}

// httpLog notes the HTTP calls of a row, and may answer in the server's place.
type httpLog struct {
	// instead, if set, may answer a call: it returns false to leave it to the
	// server. n counts the calls of one path, from 0.
	instead func(w http.ResponseWriter, path string, n int) bool
	// lose, if set, is asked whether the server's answer gets lost.
	lose func(path string, n int) bool
	// movedTo, once set, is the only path on which upgrades are let through.
	movedTo atomic.Pointer[string]
	// down, while set, ends every request without an answer.
	down atomic.Bool

	mu       sync.Mutex
	calls    []httpCall
	upgrades []upgrade
}

// upgrade is one request to become a WebSocket.
type upgrade struct {
	at          time.Time
	method, uri string
	header      http.Header
}

func (l *httpLog) over(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			l.mu.Lock()
			l.upgrades = append(l.upgrades, upgrade{time.Now(), r.Method, r.RequestURI, r.Header.Clone()})
			l.mu.Unlock()
			if l.down.Load() {
				panic(http.ErrAbortHandler)
			}
			if to := l.movedTo.Load(); to != nil {
				if r.URL.Path != *to {
					http.NotFound(w, r)
					return
				}
				r.URL.Path = wire.WSPath
			}
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		n := len(l.to(r.URL.Path))
		if l.down.Load() {
			l.mu.Lock()
			l.calls = append(l.calls, httpCall{at: time.Now(), path: r.URL.Path, body: string(body)})
			l.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		kept := httptest.NewRecorder()
		if l.instead == nil || !l.instead(kept, r.URL.Path, n) {
			next.ServeHTTP(kept, r)
		}
		l.mu.Lock()
		l.calls = append(l.calls, httpCall{time.Now(), r.URL.Path, string(body), kept.Code, kept.Body.String()})
		l.mu.Unlock()
		if l.lose != nil && l.lose(r.URL.Path, n) {
			panic(http.ErrAbortHandler) // the connection closes without an answer
		}
		for name, values := range kept.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(kept.Code)
		_, _ = w.Write(kept.Body.Bytes()) // a client that left does not read it
	})
}

// upgraded returns the upgrades so far.
func (l *httpLog) upgraded() []upgrade {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.upgrades)
}

// to returns the calls to a path so far.
func (l *httpLog) to(path string) []httpCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	var got []httpCall
	for _, c := range l.calls {
		if c.path == path {
			got = append(got, c)
		}
	}
	return got
}

// refusal answers as the guide says refusals look.
func refusal(w http.ResponseWriter, status int, code, retryAfter string) {
	w.Header().Set("Content-Type", "application/json")
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	w.WriteHeader(status)
	_, _ = io.Copy(w, strings.NewReader(`{"errorCode":"`+code+`","message":"refused"}`))
}
