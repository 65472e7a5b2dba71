package link_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/link"
)

// BenchmarkWrite sends frames of a full chunk to a server on loopback that reads
// and drops them.
func BenchmarkWrite(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		c.SetReadLimit(4 << 20)
		buf := make([]byte, 128<<10)
		for {
			_, frame, err := c.Reader(r.Context())
			if err != nil {
				return
			}
			for err == nil {
				_, err = frame.Read(buf)
			}
		}
	}))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		b.Fatal(err)
	}
	d := link.Dialer{Server: address}
	s, err := d.DialPath(b.Context(), "/ws")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.CloseNow() }()
	frame := make([]byte, 87_500)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Write(context.Background(), frame); err != nil {
			b.Fatal(err)
		}
	}
}
