package link_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/wire"
)

// echo answers every frame with itself.
func echo(rw http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(rw, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(4 << 20)
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if err := c.Write(r.Context(), kind, b); err != nil {
			return
		}
	}
}

func parse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// counting counts the writes of a connection.
type counting struct {
	net.Conn
	writes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func exchange(t *testing.T, s link.Socket, sizes ...int) {
	t.Helper()
	for _, n := range sizes {
		want := bytes.Repeat([]byte("s"), n)
		if err := s.Write(context.Background(), want); err != nil {
			t.Fatalf("write %d bytes: %v", n, err)
		}
		got, err := s.Read(context.Background())
		if err != nil {
			t.Fatalf("read %d bytes: %v", n, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes came back as %d", n, len(got))
		}
	}
}

// boundaries are sizes around those of buffers and frame headers.
func boundaries() []int {
	var sizes []int
	for _, around := range []int{0, 125, 4096, 2 * 4096, 65535, 256 << 10, wire.MaxFrameBytes} {
		reach := 14 // a header's length
		if around > 65535 {
			reach = 2
		}
		for d := -reach; d <= reach; d++ {
			if n := around + d; n >= 0 && n <= wire.MaxFrameBytes {
				sizes = append(sizes, n)
			}
		}
	}
	return sizes
}

func TestFramesOfEverySizePassOverTCPAndTLS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(echo))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for name, d := range map[string]link.Dialer{
		"plain": {Server: parse(t, plain.URL)},
		"TLS":   {Server: parse(t, secure.URL), Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := d.DialPath(t.Context(), "/v1/device/ws")
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, s, boundaries()...)
			ponged := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				ponged <- s.Ping(ctx)
			}()
			go func() { _, _ = s.Read(context.Background()) }()
			if err := <-ponged; err != nil {
				t.Errorf("ping: %v", err)
			}
			if s.Silence() > 5*time.Second {
				t.Errorf("silence of %v right after a pong", s.Silence())
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func TestALargeFrameIsOneSystemCall(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	var writes atomic.Int64
	d := link.Dialer{Server: parse(t, server.URL), Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return counting{c, &writes}, nil
	}}}
	s, err := d.DialPath(t.Context(), "/ws")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.CloseNow() }()
	writes.Store(0)
	exchange(t, s, 88_000, 88_000, 88_000, 88_000)
	if n := writes.Load(); n != 4 {
		t.Errorf("%d writes for 4 frames", n)
	}
}

func TestACertificateOfNobodyWeKnowIsRefused(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	d := link.Dialer{Server: parse(t, server.URL)}
	_, err := d.DialPath(t.Context(), "/ws")
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("err = %v", err)
	}
}

func TestAProxyIsUsedAndItsRefusalIsAnError(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	var refuse atomic.Bool
	var through atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || refuse.Load() {
			http.Error(rw, "no", http.StatusProxyAuthRequired)
			return
		}
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(rw, "no", http.StatusBadGateway)
			return
		}
		defer up.Close()
		through.Add(1)
		rw.WriteHeader(http.StatusOK)
		down, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		go func() { _, _ = io.Copy(up, buffered) }()
		_, _ = io.Copy(down, up)
	}))
	defer proxy.Close()
	d := link.Dialer{Server: parse(t, server.URL), Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Proxy: http.ProxyURL(parse(t, proxy.URL))}}
	s, err := d.DialPath(t.Context(), "/ws")
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, s, 10, 100_000)
	_ = s.CloseNow()
	if through.Load() != 1 {
		t.Errorf("%d connections through the proxy", through.Load())
	}
	refuse.Store(true)
	if _, err := d.DialPath(t.Context(), "/ws"); err == nil || !strings.Contains(err.Error(), "Proxy Authentication Required") {
		t.Errorf("err = %v", err)
	}
}

func TestAServerThatHangsUpInTheUpgradeIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_ = c.Close()
		}
	}()
	d := link.Dialer{Server: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	var refused *link.UpgradeError
	if _, err := d.DialPath(t.Context(), "/ws"); err == nil || errors.As(err, &refused) {
		t.Errorf("err = %v", err)
	}
}

func TestThePathIsJoinedToTheServersOwn(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked <- r.URL.RequestURI()
		http.NotFound(rw, r)
	}))
	defer server.Close()
	for _, c := range []struct{ server, path, want string }{
		{"", "/v1/device/ws", "/v1/device/ws"},
		{"/", "/v1/device/ws", "/v1/device/ws"},
		{"/sema", "/v1/device/ws", "/sema/v1/device/ws"},
		{"/sema/", "/ws?lane=2", "/sema/ws?lane=2"},
		{"/a%2Fb/", "/v1/device/ws", "/a%2Fb/v1/device/ws"},
		{"/a%20b", "/lane%2F1", "/a%20b/lane%2F1"},
	} {
		d := link.Dialer{Server: parse(t, server.URL+c.server)}
		_, err := d.DialPath(t.Context(), c.path)
		var refused *link.UpgradeError
		if !errors.As(err, &refused) || refused.Status != 404 {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if got := <-asked; got != c.want {
			t.Errorf("%s and %s make %s, want %s", c.server, c.path, got, c.want)
		}
	}
	d := link.Dialer{Server: parse(t, server.URL)}
	for _, path := range []string{"", "ws", "//elsewhere.example/ws", "https://elsewhere.example/ws", "/%zz"} {
		if _, err := d.DialPath(t.Context(), path); err == nil {
			t.Errorf("the path %q was dialled", path)
		}
	}
}

func TestAFrameAboveTheLimitEndsTheSocket(t *testing.T) {
	told := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		go func() { _ = c.Write(r.Context(), websocket.MessageText, bytes.Repeat([]byte("x"), 2<<20)) }()
		_, _, err = c.Read(r.Context())
		told <- err
		_ = c.CloseNow()
	}))
	defer server.Close()
	d := link.Dialer{Server: parse(t, server.URL)}
	s, err := d.DialPath(t.Context(), "/ws")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.CloseNow() }()
	if _, err := s.Read(context.Background()); !errors.Is(err, websocket.ErrMessageTooBig) {
		t.Errorf("err = %v", err)
	}
	if err := <-told; websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("the server was told %v", err)
	}
}

func TestAWriteWhoseContextEndsDropsTheSocket(t *testing.T) {
	blocked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		<-blocked // reads nothing
		_ = c.CloseNow()
	}))
	defer server.Close()
	defer close(blocked)
	d := link.Dialer{Server: parse(t, server.URL)}
	s, err := d.DialPath(t.Context(), "/ws")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.CloseNow() }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for {
			if err := s.Write(ctx, make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the write goes on")
	}
}
