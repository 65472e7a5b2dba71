package enroll_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// Secrets that must not turn up where they do not belong.
const (
	theCredential = "cred-7f3a9b51c4"
	theToken      = "et_5d20e8a6f1b7"
)

func theServer(t testing.TB) enroll.Server {
	t.Helper()
	s, err := enroll.ParseServer("https://sema.example/api/", false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func credential(t testing.TB) enroll.Credential {
	t.Helper()
	c, err := enroll.NewCredential(theCredential + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func token(t testing.TB) enroll.Token {
	t.Helper()
	k, err := enroll.NewToken(theToken + "\r\n")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newKey(t testing.TB) handshake.PrivateKey {
	t.Helper()
	k, err := handshake.KeyFromSeed(bytes.Repeat([]byte{0x3C, 0xE1}, 16))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func registration(t testing.TB) enroll.Registration {
	return enroll.Registration{
		Token: token(t), PublicKey: newKey(t).Public(), PlatformOS: "linux", PlatformArch: "amd64",
		DisplayName: "Ada's laptop", WorkspaceRoot: "/home/ada/work",
	}
}

// sent is a request as a server saw it.
type sent struct {
	method, url, body string
	header            http.Header
}

// scripted is a network with one server on it, which gives one answer after
// another. It has no sockets, so that time can be virtual.
type scripted struct {
	answers  []said
	errs     map[int]error // instead of the answer of that number
	requests []sent
	hang     map[int]bool // never answers the request of that number
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	n := len(s.requests)
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	s.requests = append(s.requests, sent{r.Method, r.URL.String(), body, r.Header.Clone()})
	if s.hang[n] {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if err := s.errs[n]; err != nil {
		return nil, err
	}
	if n >= len(s.answers) {
		return nil, errors.New("the script is over")
	}
	a := s.answers[n]
	h := http.Header{}
	for name, value := range a.Headers {
		h.Set(name, value)
	}
	return &http.Response{StatusCode: a.Status, Header: h, Body: io.NopCloser(strings.NewReader(a.Body)), Request: r}, nil
}

func newClient(transport http.RoundTripper) *enroll.Client {
	return &enroll.Client{Transport: transport, UserAgent: "sema-device/test", Now: time.Now}
}

// forPeople checks what every error shown to a person owes: one line without
// secrets or escape sequences, and advice, whose lines are sentences or commands.
func forPeople(t testing.TB, err error) {
	t.Helper()
	text, advice := err.Error(), enroll.Advice(err)
	for _, s := range append([]string{text}, strings.Split(advice, "\n")...) {
		if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != ' ' }) {
			t.Errorf("not one printable line: %q", s)
		}
		for _, secret := range []string{theCredential, theToken} {
			if strings.Contains(s, secret) {
				t.Errorf("shows a secret: %q", s)
			}
		}
		for _, library := range []string{"dial tcp", "lookup ", "x509:", "tls:", "net/http:", " json:", "JSON input", "invalid character", "parsing time", "illegal base64"} {
			if strings.Contains(s, library) {
				t.Errorf("in a library's words: %q", s)
			}
		}
		if strings.Contains(s, "<!doctype") || strings.Contains(s, "<html") {
			t.Errorf("shows a page: %q", s)
		}
	}
	last := advice[strings.LastIndexByte(advice, '\n')+1:]
	if advice == "" || !strings.HasSuffix(last, ".") && !strings.HasPrefix(last, remedy.Indent) {
		t.Errorf("%q has the advice %q", text, advice)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
