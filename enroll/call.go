package enroll

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	callTimeout     = 15 * time.Second // one HTTP call, its answer read
	maxAnswerBytes  = 256 << 10        // more than any answer has
	maxMessageRunes = 300              // of a server's message, as shown
	// longestAsked is the longest wait that a server is taken at its word with:
	// beyond a century it is for ever.
	longestAsked = 100 * 365 * 24 * time.Hour
)

// Client makes the three HTTP calls of an enrollment. It follows no redirects:
// credential and token go to the server that was named.
type Client struct {
	// Transport is what NewTransport returns, or one for tests.
	Transport http.RoundTripper
	// UserAgent is sent with every call.
	UserAgent string
	// Now reads the wall clock, for retry-after answers that give a date.
	Now func() time.Time
	// Waiting, if not nil, is told before each wait between attempts: why, and
	// for how long.
	Waiting func(why string, wait time.Duration)
}

// call is one request: what it is for, and what goes into it.
type call struct {
	doing      string // "register this device"
	method     string
	server     Server
	path       string
	credential Credential
	body       []byte // nil: an empty body
}

// answer is what a server said, complete.
type answer struct {
	url      string
	status   int
	header   http.Header
	body     []byte
	received time.Time
}

// send makes one attempt. Its error is an *UnreachableError or the context's.
func (c *Client) send(ctx context.Context, req call) (*answer, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	address := req.server.URL(req.path)
	unreachable := func(err error) error {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", req.doing, context.Cause(ctx))
		}
		return &UnreachableError{Doing: req.doing, URL: address, Layer: layerOf(err), Err: plain(err)}
	}

	r, err := http.NewRequestWithContext(limited, req.method, address, bytes.NewReader(req.body))
	if err != nil {
		return nil, unreachable(err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", c.UserAgent)
	if req.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if !req.credential.IsZero() {
		r.Header.Set("Authorization", "Bearer "+req.credential.reveal())
	}
	hc := http.Client{
		Transport:     c.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := hc.Do(r)
	if err != nil {
		return nil, unreachable(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, unreachable(err)
	}
	if len(body) > maxAnswerBytes {
		body = nil // no answer of this protocol; judged by its status alone
	}
	return &answer{url: address, status: resp.StatusCode, header: resp.Header, body: body, received: c.Now()}, nil
}

// layerOf says how far a failed call got.
func layerOf(err error) Layer {
	var (
		refusal *proxyRefusal
		address *BadProxyError
		dns     *net.DNSError
		op      *net.OpError
		cert    *tls.CertificateVerificationError
		alert   tls.AlertError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &op) && op.Op == "proxyconnect", errors.As(err, &refusal), errors.As(err, &address):
		return LayerProxy
	case errors.As(err, &dns):
		return LayerDNS
	case errors.As(err, &cert), errors.As(err, &alert), errors.As(err, &unknown),
		errors.As(err, &name), errors.As(err, &invalid), notTLS(err):
		return LayerTLS
	case errors.As(err, &op) && op.Op == "dial":
		return LayerConnect
	}
	return LayerHTTP
}

// notTLS reports that something else than TLS answered.
func notTLS(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// plain takes off what the error around it says already, method and address,
// and the names of the libraries that an error came through.
func plain(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	if u.Timeout() {
		return fmt.Errorf("no answer in %s", callTimeout)
	}
	text := u.Err.Error()
	var (
		dns    *net.DNSError
		number syscall.Errno
	)
	switch {
	case errors.As(u.Err, &dns):
		text = dns.Err
	case errors.As(u.Err, &number):
		text = number.Error()
	}
	for _, library := range []string{"net/http: ", "http: ", "remote error: ", "tls: failed to verify certificate: ", "x509: ", "tls: "} {
		text = strings.TrimPrefix(text, library)
	}
	return &reworded{text: text, err: u.Err}
}

// reworded is an error in words for people.
type reworded struct {
	text string
	err  error
}

func (e *reworded) Error() string { return e.text }

func (e *reworded) Unwrap() error { return e.err }

// members returns the members of a 200 that is a JSON object, by their exact
// names, or the error that any other answer is.
func (a *answer) members(doing string) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if a.status == http.StatusOK && json.Unmarshal(a.body, &m) == nil && m != nil {
		return m, nil
	}
	return nil, a.refusal(doing)
}

// refusal turns an answer that is not a success into its error.
func (a *answer) refusal(doing string) *AnswerError {
	e := &AnswerError{Doing: doing, URL: a.url, Status: a.status}
	e.Code, e.Message = a.words()
	switch {
	case a.status == http.StatusUnauthorized:
		e.Reason = ReasonNotSignedIn
	case a.status == http.StatusForbidden && e.Code == "device.enrollment_invalid":
		e.Reason = ReasonTokenRefused
	case a.status == http.StatusForbidden && e.Code == "auth.forbidden":
		e.Reason = ReasonForbidden
	case a.status == http.StatusBadRequest:
		e.Reason = ReasonBadRequest
	case a.status == http.StatusNotFound:
		e.Reason = ReasonNotFound
	case a.status == http.StatusTooManyRequests:
		e.Reason = ReasonRateLimited
		e.RetryAfter = a.retryAfter()
	case a.status == http.StatusNotImplemented:
		e.Reason = ReasonNoLane
	case a.status >= 500:
		e.Reason = ReasonServerFault
	case a.status >= 400:
		e.Reason = ReasonRefused
	case a.status >= 300:
		e.Reason = ReasonRedirected
		e.Location = printable(a.header.Get("Location"))
	default:
		e.Reason = ReasonNotTheAPI
		e.Code, e.Message = "", ""
	}
	return e
}

// words reads errorCode and message from an error body, also from inside an
// `error` object, and nothing from a page.
func (a *answer) words() (code, message string) {
	if kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type")); err == nil && kind == "text/html" {
		return "", ""
	}
	var body map[string]json.RawMessage
	if json.Unmarshal(a.body, &body) != nil {
		return "", ""
	}
	text := func(from map[string]json.RawMessage, name string) string {
		var s string
		_ = json.Unmarshal(from[name], &s) // another type: as good as absent
		return printable(s)
	}
	code, message = text(body, "errorCode"), text(body, "message")
	var inner map[string]json.RawMessage
	if json.Unmarshal(body["error"], &inner) == nil {
		if code == "" {
			code = text(inner, "errorCode")
		}
		if message == "" {
			message = text(inner, "message")
		}
	}
	return code, message
}

// retryAfter returns how long a 429 asks to wait, or 0 if it does not say. More
// than longestAsked, in whatever number of digits, is longestAsked.
func (a *answer) retryAfter() time.Duration {
	text := strings.TrimSpace(a.header.Get("Retry-After"))
	seconds, err := strconv.ParseUint(text, 10, 64) // out of range: the largest there is
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestAsked/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(a.received) {
		return min(at.Sub(a.received), longestAsked)
	}
	return 0
}

// printable makes a server's words fit for a terminal: one line, no control or
// formatting characters, cut to a length people read.
func printable(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == maxMessageRunes {
			b.WriteString("…")
			break
		}
		switch {
		case unicode.IsSpace(r):
			b.WriteRune(' ')
		case r == utf8.RuneError || !unicode.IsPrint(r):
			continue
		default:
			b.WriteRune(r)
		}
		n++
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
