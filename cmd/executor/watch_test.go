package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
)

func TestAWatchedPageNeitherWrapsNorScrolls(t *testing.T) {
	page := []byte("one\ntwo is longer\nthree\nfour\n")
	for _, c := range []struct {
		size terminalSize
		want string
	}{
		{terminalSize{}, "one\ntwo is longer\nthree\nfour\n"},
		{terminalSize{80, 24}, "one\ntwo is longer\nthree\nfour\n"},
		{terminalSize{80, 5}, "one\ntwo is longer\nthree\nfour\n"},
		{terminalSize{80, 4}, "one\ntwo is longer\n…\n"},
		{terminalSize{6, 24}, "one\ntwo i…\nthree\nfour\n"},
		{terminalSize{6, 2}, "…\n"},
		{terminalSize{1, 1}, "…\n…\n…\n…\n"},
	} {
		if got := string(c.size.fit(page)); got != c.want {
			t.Errorf("%+v: %q, want %q", c.size, got, c.want)
		}
	}
}

func TestAWatchedPageIsDrawnOverTheLastOne(t *testing.T) {
	for _, c := range []struct {
		last    string
		resized bool
		want    string
	}{
		{"", false, "\x1b[Jnew\n"},
		{"a\nb\n", false, "\x1b[2A\x1b[Jnew\n"},
		{"a\nb\n", true, "\x1b[H\x1b[Jnew\n"},
	} {
		if got := string(redraw([]byte(c.last), []byte("new\n"), c.resized)); got != c.want {
			t.Errorf("%q: %q, want %q", c.last, got, c.want)
		}
	}
}

// pages is an output that can be read while it grows.
type pages struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *pages) waitFor(t *testing.T, text string) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		shown := p.b.String()
		p.mu.Unlock()
		if strings.Contains(shown, text) {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("no %q in\n%s", text, shown)
		}
	}
}

func TestAWatcherIsToldWhenTheDeviceIsRevokedOrUnenrolled(t *testing.T) {
	m := newMachine(t)
	id := m.enroll("")
	var out pages
	a := &app{stdout: &out, stderr: &out, getenv: func(name string) string { return m.env[name] }, now: m.now}
	ended := make(chan error, 1)
	go func() { ended <- a.watchStatus(context.WithoutCancel(t.Context()), m.home(), id, false) }()

	out.waitFor(t, "not running")
	if err := m.home().Revoke(t.Context(), m.record(id), m.stores(), m.now()); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "Enroll again")
	if s := m.run("device", "unenroll", "--device", id, "--yes"); s.code != 0 {
		t.Fatalf("%+v", s)
	}
	select {
	case err := <-ended:
		if code := enroll.ExitCode(err); code != exitNoDevice {
			t.Errorf("exit %d: %v", code, err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on watching what is gone")
	}
}
