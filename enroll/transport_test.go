package enroll_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
)

// site is a real server that keeps what it was asked.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	sent []sent
}

func (s *site) requests() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func (s *site) handler(answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(500)
			return
		}
		s.mu.Lock()
		s.sent = append(s.sent, sent{r.Method, r.URL.String(), string(body), r.Header.Clone()})
		s.mu.Unlock()
		answer(w, r)
	})
}

func newSite(t *testing.T, start func(*httptest.Server), answer http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewUnstartedServer(s.handler(answer))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(s.Server)
	t.Cleanup(s.Close)
	return s
}

func api(w http.ResponseWriter, r *http.Request) {
	body := good["register"].Body
	switch {
	case strings.HasSuffix(r.URL.Path, "/capabilities"):
		body = good["capabilities"].Body
	case strings.HasSuffix(r.URL.Path, "/enroll-tokens"):
		body = good["token"].Body
	}
	_, _ = io.WriteString(w, body)
}

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func realClient(t *testing.T, values map[string]string) *enroll.Client {
	t.Helper()
	transport, err := enroll.NewTransport(env(values))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return newClient(transport)
}

func at(t *testing.T, address string) enroll.Server {
	t.Helper()
	s, err := enroll.ParseServer(address, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNothingGoesToAnAddressThatWasNotNamed(t *testing.T) {
	elsewhere := newSite(t, (*httptest.Server).Start, api)
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := newSite(t, (*httptest.Server).Start, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere.URL+r.URL.Path)
			w.WriteHeader(status)
		})
		client := realClient(t, nil)
		_, discoverErr := client.Discover(t.Context(), at(t, server.URL))
		_, tokenErr := client.IssueToken(t.Context(), at(t, server.URL), credential(t))
		_, _, registerErr := client.Register(t.Context(), at(t, server.URL), credential(t), registration(t))
		for _, err := range []error{discoverErr, tokenErr, registerErr} {
			var answered *enroll.AnswerError
			if !errors.As(err, &answered) || answered.Reason != enroll.ReasonRedirected || !strings.Contains(err.Error(), elsewhere.URL) || enroll.ExitCode(err) != 1 {
				t.Errorf("%d: %v", status, err)
				continue
			}
			forPeople(t, err)
		}
		if n := len(server.requests()); n != 3 {
			t.Errorf("%d: %d requests", status, n)
		}
	}
	if got := elsewhere.requests(); len(got) != 0 {
		t.Errorf("followed to %v", got)
	}
}

func TestAPathPrefixIsKept(t *testing.T) {
	server := newSite(t, (*httptest.Server).Start, api)
	client := realClient(t, nil)
	if _, err := client.Discover(t.Context(), at(t, server.URL+"/deep/er//")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.IssueToken(t.Context(), at(t, server.URL+"/deep/er//"), credential(t)); err != nil {
		t.Fatal(err)
	}
	got := server.requests()
	if len(got) != 2 || got[0].url != "/deep/er/v1/capabilities" || got[1].url != "/deep/er/v1/devices/enroll-tokens" {
		t.Fatalf("asked %+v", got)
	}
	if got[1].body != "" || got[1].header.Get("Content-Length") != "0" && got[1].header.Get("Transfer-Encoding") != "" {
		t.Errorf("the token request has a body: %+v", got[1])
	}
}

func certFile(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExtraCACertificatesAreAdded(t *testing.T) {
	server := newSite(t, (*httptest.Server).StartTLS, api)
	_, err := realClient(t, nil).Discover(t.Context(), at(t, server.URL))
	var silent *enroll.UnreachableError
	if !errors.As(err, &silent) || silent.Layer != enroll.LayerTLS || enroll.ExitCode(err) != 1 {
		t.Fatalf("a certificate nobody vouches for: %v", err)
	}
	forPeople(t, err)
	if _, err := realClient(t, map[string]string{"SSL_CERT_FILE": certFile(t, server.Server)}).Discover(t.Context(), at(t, server.URL)); err != nil {
		t.Errorf("with its file: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	write(t, empty, "no certificate\n")
	for _, path := range []string{empty, filepath.Join(t.TempDir(), "missing.pem")} {
		if _, err := enroll.NewTransport(env(map[string]string{"SSL_CERT_FILE": path})); enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
}

func TestExtraCACertificatesDoNotReplaceTheSystems(t *testing.T) {
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	if _, err := os.Stat(bundle); err != nil {
		t.Skipf("no bundle of the system to look for: %v", err)
	}
	server := newSite(t, (*httptest.Server).StartTLS, api)
	extra := certFile(t, server.Server)
	// Go reads the variable from the process and only once: ask a new process.
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperComparesRoots$", "-test.v")
	cmd.Env = append(os.Environ(), "SEMA_TEST_ROOTS=1", "SSL_CERT_FILE="+extra, "SSL_CERT_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("more than the extra one")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestHelperComparesRoots(t *testing.T) {
	if os.Getenv("SEMA_TEST_ROOTS") == "" {
		t.Skip("runs inside TestExtraCACertificatesDoNotReplaceTheSystems")
	}
	transport, err := enroll.NewTransport(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	extra, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	if err != nil {
		t.Fatal(err)
	}
	only := x509.NewCertPool()
	only.AppendCertsFromPEM(extra)
	if system, err := x509.SystemCertPool(); err != nil || !system.Equal(only) {
		t.Fatalf("this test would see nothing: %v", err)
	}
	if transport.TLSClientConfig.RootCAs.Equal(only) {
		t.Fatal("the system's roots are gone")
	}
	t.Log("more than the extra one")
}

func TestAWrongPortAndAPlainServerNameTheirLayer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	plainServer := newSite(t, (*httptest.Server).Start, api)
	for url, layer := range map[string]enroll.Layer{
		"http://" + address: enroll.LayerConnect,
		strings.Replace(plainServer.URL, "http:", "https:", 1): enroll.LayerTLS,
		"https://does-not-exist.invalid":                       enroll.LayerDNS,
	} {
		_, err := realClient(t, nil).Discover(t.Context(), at(t, url))
		var silent *enroll.UnreachableError
		if !errors.As(err, &silent) || silent.Layer != layer {
			t.Errorf("%s: %v, want layer %s", url, err, layer)
			continue
		}
		forPeople(t, err)
	}
}

func TestAServerWithoutTLSIsNotBlamedForItsCertificate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // until l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail.example ESMTP\r\n"))
			_ = c.Close()
		}
	}()
	plainServer := newSite(t, (*httptest.Server).Start, api)
	for _, url := range []string{"https://" + l.Addr().String(), strings.Replace(plainServer.URL, "http:", "https:", 1)} {
		_, err := realClient(t, nil).Discover(t.Context(), at(t, url))
		if text := fmt.Sprint(err, enroll.Advice(err)); !strings.Contains(text, "does not speak TLS") || strings.Contains(text, "certificate") {
			t.Errorf("%s: %s", url, text)
		}
	}
}

func TestProxiesComeFromTheEnvironment(t *testing.T) {
	proxy := newSite(t, (*httptest.Server).Start, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.WriteHeader(407)
			return
		}
		api(w, r)
	})
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deadURL := "http://" + dead.Addr().String()
	dead.Close()
	// The variables are read once per process: ask new ones.
	for _, c := range []struct{ proxy, server, says string }{
		{proxy.URL, "http://device-lane.invalid", "layer: none"},
		{proxy.URL, "https://device-lane.invalid", "layer: proxy"},
		{deadURL, "https://device-lane.invalid", "layer: proxy"},
		{"garbage:::", "https://device-lane.invalid", "not the address of a proxy"},
		{"http://[::1", "https://device-lane.invalid", "not the address of a proxy"},
		{"http://127.0.0.1:99999", "https://device-lane.invalid", "not the address of a proxy"},
		{"ftp://127.0.0.1", "https://device-lane.invalid", "not the address of a proxy"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHelperAsksThroughAProxy$", "-test.v")
		cmd.Env = append(os.Environ(), "SEMA_TEST_ASK="+c.server, "HTTP_PROXY="+c.proxy, "HTTPS_PROXY="+c.proxy, "NO_PROXY=", "no_proxy=", "http_proxy=", "https_proxy=", "REQUEST_METHOD=")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(c.says)) {
			t.Errorf("%s by %s, want %q: %v\n%s", c.server, c.proxy, c.says, err, out)
		}
	}
	got := proxy.requests()
	if len(got) != 2 || got[0].url != "http://device-lane.invalid/v1/capabilities" || got[1].method != "CONNECT" {
		t.Errorf("the proxy saw %+v", got)
	}
}

func TestHelperAsksThroughAProxy(t *testing.T) {
	address := os.Getenv("SEMA_TEST_ASK")
	if address == "" {
		t.Skip("runs inside TestProxiesComeFromTheEnvironment")
	}
	server, err := enroll.ParseServer(address, true)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := enroll.NewTransport(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newClient(transport).Discover(t.Context(), server)
	layer := enroll.Layer("none")
	var silent *enroll.UnreachableError
	if errors.As(err, &silent) {
		layer = silent.Layer
		forPeople(t, err)
	} else if err != nil {
		t.Error(err)
	}
	t.Logf("layer: %s (%v)", layer, err)
}
