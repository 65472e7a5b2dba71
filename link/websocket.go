package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

const (
	// readSlack is added to the protocol's frame limit: the server promises the
	// limit, and a frame that misses it by a little is no reason to lose the
	// connection and everything in flight.
	readSlack = 64 << 10
	// closeLimit is how long a polite close may take.
	closeLimit = 2 * time.Second
)

// Dialer opens sockets on one server over real connections.
type Dialer struct {
	Server *url.URL // http or https; a path is kept as prefix
	// Transport says how servers are reached: proxy, trust, dialling. Nil: as Go
	// does by default. It is copied, never used itself.
	Transport *http.Transport
	UserAgent string // "": Go's own
}

// UpgradeError is an answer to the upgrade request that was no upgrade. None of
// them is final.
type UpgradeError struct {
	URL      string
	Status   int    // HTTP status
	Location string // of a redirect, which is never followed
}

// Error implements error. It shows nothing of the answer's page.
func (e *UpgradeError) Error() string {
	if e.Location != "" {
		return fmt.Sprintf("connect to %s: redirected (%d) to %s; redirects are not followed", e.URL, e.Status, e.Location)
	}
	if e.Status == http.StatusOK {
		return fmt.Sprintf("connect to %s: a page was served where a WebSocket was expected", e.URL)
	}
	return fmt.Sprintf("connect to %s: refused with %d %s", e.URL, e.Status, http.StatusText(e.Status))
}

// DialPath opens a socket on the given path of the server. The error is an
// *UpgradeError if an HTTP answer came.
func (d *Dialer) DialPath(ctx context.Context, path string) (Socket, error) {
	target, err := d.target(path)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	transport := &gathering{Transport: d.transport(), clock: func() time.Duration { return time.Since(start) }}
	header := http.Header{}
	if d.UserAgent != "" {
		header.Set("User-Agent", d.UserAgent)
	}
	conn, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader:      header,
		CompressionMode: websocket.CompressionDisabled,
	})
	switch {
	case err == nil:
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return nil, &UpgradeError{URL: target, Status: resp.StatusCode, Location: resp.Header.Get("Location")}
	default:
		return nil, fmt.Errorf("connect to %s: %w", target, plain(err))
	}
	conn.SetReadLimit(wire.MaxFrameBytes + readSlack)
	return &webSocket{conn: conn, out: transport.upgraded}, nil
}

// target joins the server's address and the path of the lane.
func (d *Dialer) target(path string) (string, error) {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return "", fmt.Errorf("connect to %s: %q is not a path on this server", d.Server.Redacted(), path)
	}
	ref, err := url.Parse(path)
	if err != nil || ref.Host != "" || ref.Scheme != "" {
		return "", fmt.Errorf("connect to %s: %q is not a path on this server", d.Server.Redacted(), path)
	}
	u := *d.Server
	// In both spellings, so that what is escaped in either part stays as it is.
	u.RawPath = strings.TrimRight(u.EscapedPath(), "/") + ref.EscapedPath()
	u.Path = strings.TrimRight(u.Path, "/") + ref.Path
	u.RawQuery, u.Fragment = ref.RawQuery, ""
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	}
	return u.String(), nil
}

// plain takes off what the libraries put in front of the network's own words.
func plain(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// transport is for one attempt.
func (d *Dialer) transport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if d.Transport != nil {
		t = d.Transport.Clone()
	}
	t.DisableKeepAlives = true // an answer that is no upgrade leaves nothing behind
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true) // upgrades are of HTTP/1.1
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	return t
}

// gathering is a transport that puts a coalescer under the one connection it
// upgrades: above TLS, and after proxies have had their say.
type gathering struct {
	*http.Transport
	clock    func() time.Duration
	upgraded *coalescer
}

// RoundTrip implements http.RoundTripper.
func (g *gathering) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.Transport.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	rwc, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return nil, errors.New("the HTTP client gave no connection for the upgrade")
	}
	g.upgraded = newCoalescer(rwc, g.clock)
	resp.Body = g.upgraded
	return resp, nil
}

// webSocket is a Socket over the WebSocket library.
type webSocket struct {
	conn *websocket.Conn
	out  *coalescer
	in   bytes.Buffer
}

// Read implements Socket. Binary frames have no place in the protocol (§2) and
// are passed over.
func (s *webSocket) Read(ctx context.Context) ([]byte, error) {
	frame, err := s.read(ctx)
	if errors.Is(err, websocket.ErrMessageTooBig) {
		_ = s.close(websocket.StatusMessageTooBig)
	}
	return frame, err
}

func (s *webSocket) read(ctx context.Context) ([]byte, error) {
	for {
		kind, r, err := s.conn.Reader(ctx)
		if err != nil {
			return nil, err
		}
		s.in.Reset()
		if _, err := s.in.ReadFrom(r); err != nil {
			return nil, err
		}
		if kind == websocket.MessageText {
			return s.in.Bytes(), nil
		}
	}
}

// Write implements Socket. If ctx ends before it is through, the connection is
// dropped: part of the frame may be gone.
func (s *webSocket) Write(ctx context.Context, frame []byte) error {
	if ctx.Done() != nil {
		// The library watches ctx only until the coalescer has taken the frame.
		stop := context.AfterFunc(ctx, func() { _ = s.out.Close() })
		defer stop()
	}
	s.out.hold()
	err := s.conn.Write(ctx, websocket.MessageText, frame)
	if flushed := s.out.release(); err == nil {
		err = flushed
	}
	return err
}

// Ping implements Socket.
func (s *webSocket) Ping(ctx context.Context) error { return s.conn.Ping(ctx) }

// Silence implements Socket.
func (s *webSocket) Silence() time.Duration {
	return s.out.clock() - time.Duration(s.out.heard.Load())
}

// Close implements Socket.
func (s *webSocket) Close() error { return s.close(websocket.StatusNormalClosure) }

func (s *webSocket) close(code websocket.StatusCode) error {
	// The library would wait twice 5 s for a peer that is gone.
	hurry := time.AfterFunc(closeLimit, func() { _ = s.out.Close() })
	defer hurry.Stop()
	return s.conn.Close(code, "")
}

// CloseNow implements Socket.
func (s *webSocket) CloseNow() error { return s.conn.CloseNow() }
