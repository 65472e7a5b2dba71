package refserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// The HTTP paths beside Config.WSPath.
const (
	capabilitiesPath = "/v1/capabilities"
	tokensPath       = "/v1/devices/enroll-tokens"
	enrollPath       = "/v1/devices/enroll"
)

// ErrClosed reports a Server that was closed.
var ErrClosed = errors.New("reference server: closed")

// Server is one replica of the server. It is an http.Handler; see the package
// comment for what it promises.
type Server struct {
	cfg Config
	wg  sync.WaitGroup // every goroutine and every pending timer

	mu      sync.Mutex // guards all below; held over memory work only
	closed  bool
	changed chan struct{} // closed and replaced when a device's state changes

	// What a database would hold: it survives Restart.
	tokens  map[[sha256.Size]byte]*token
	devices map[string]*device

	// One replica's memory.
	draining    bool
	limiterDown bool
	windows     map[rateKey]*window
	swept       time.Time // when windows last lost those that are over
	sockets     map[*socket]struct{}
	preAuth     int              // sockets that have not completed the handshake
	calls       map[string]*Call // queued and in flight, by instruction id
	memo        memo
	timers      map[*timer]struct{}
	faults      Faults
	connections int64
	audit       []Violation
	https       map[*http.Server]struct{}
}

// New makes a Server. It starts nothing: use Serve, or hand it to an
// http.Server of your own.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	return &Server{
		cfg:     cfg,
		changed: make(chan struct{}),
		tokens:  map[[sha256.Size]byte]*token{},
		devices: map[string]*device{},
		windows: map[rateKey]*window{},
		sockets: map[*socket]struct{}{},
		calls:   map[string]*Call{},
		memo:    newMemo(cfg.Memo),
		timers:  map[*timer]struct{}{},
		https:   map[*http.Server]struct{}{},
	}
}

// ServeHTTP answers discovery, the two enrollment calls and the upgrade.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case capabilitiesPath:
		s.method(http.MethodGet, s.serveCapabilities)(w, r)
	case tokensPath:
		s.method(http.MethodPost, s.serveTokens)(w, r)
	case enrollPath:
		s.method(http.MethodPost, s.serveEnroll)(w, r)
	case s.cfg.WSPath:
		s.method(http.MethodGet, s.serveSocket)(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) method(want string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != want {
			w.Header().Set("Allow", want)
			http.Error(w, "", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	}
}

// Serve accepts connections on l until Close; it then returns ErrClosed.
// [Server.CutAfter] works on connections that came this way.
func (s *Server) Serve(l net.Listener) error {
	h := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, cutKey{}, c)
		},
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = l.Close()
		return ErrClosed
	}
	s.https[h] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	err := h.Serve(cutListener{l})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.https, h)
	if s.closed {
		return ErrClosed
	}
	return err
}

// Close drops every connection, settles what is open as outcome_unknown, and
// waits for every goroutine. Consumers (Dispatch.Deliver) must return.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	s.forget(ByShutdown)
	for t := range s.timers {
		t.stop()
	}
	https := s.https
	s.https = map[*http.Server]struct{}{}
	s.mu.Unlock()
	for h := range https {
		_ = h.Close()
	}
	s.wg.Wait()
	return nil
}

// announce wakes everyone who waits for a change.
func (s *Server) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
