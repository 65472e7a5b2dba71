package enroll_test

import (
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
)

func TestServersAreReadIntoOneSpelling(t *testing.T) {
	cases := []struct {
		raw      string
		insecure bool
		want, ws string
	}{
		{"https://sema.example", false, "https://sema.example", "wss://sema.example/v1/device/ws"},
		{"https://sema.example/", false, "https://sema.example", "wss://sema.example/v1/device/ws"},
		{"HTTPS://Sema.Example:443//", false, "https://sema.example", "wss://sema.example/v1/device/ws"},
		{"https://sema.example:8443/api/v2///", false, "https://sema.example:8443/api/v2", "wss://sema.example:8443/api/v2/v1/device/ws"},
		{"https://sema.example/a%20b", false, "https://sema.example/a%20b", "wss://sema.example/a%20b/v1/device/ws"},
		{"https://[2001:db8::1]:8443", false, "https://[2001:db8::1]:8443", "wss://[2001:db8::1]:8443/v1/device/ws"},
		{"http://127.0.0.1:8080", false, "http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/device/ws"},
		{"http://127.9.9.9", false, "http://127.9.9.9", "ws://127.9.9.9/v1/device/ws"},
		{"http://[::1]:80", false, "http://[::1]", "ws://[::1]/v1/device/ws"},
		{"http://[::ffff:127.0.0.1]:1", false, "http://[::ffff:127.0.0.1]:1", "ws://[::ffff:127.0.0.1]:1/v1/device/ws"},
		{"http://LOCALHOST:9", false, "http://localhost:9", "ws://localhost:9/v1/device/ws"},
		{"http://sema.example", true, "http://sema.example", "ws://sema.example/v1/device/ws"},
	}
	for _, c := range cases {
		s, err := enroll.ParseServer(c.raw, c.insecure)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if s.String() != c.want || s.WebSocketURL("") != c.ws {
			t.Errorf("%s: %s and %s, want %s and %s", c.raw, s, s.WebSocketURL(""), c.want, c.ws)
		}
		again, err := enroll.ParseServer(s.String(), c.insecure)
		if err != nil || again != s {
			t.Errorf("%s does not come back: %v, %v", s, again, err)
		}
		if s.Insecure() != c.insecure {
			t.Errorf("%s: insecure %v", c.raw, s.Insecure())
		}
	}
	s := theServer(t)
	if got := s.WebSocketURL("/d?x=1"); got != "wss://sema.example/api/d?x=1" {
		t.Errorf("got %s", got)
	}
}

func TestAddressesThatAreNotServersAreRefused(t *testing.T) {
	cases := map[string]string{ // and a word the message must have
		"":                               "--server",
		"sema.example":                   "https://host",
		"sema.example:443":               "https://host",
		"//sema.example":                 "https://host",
		"ftp://sema.example":             "https://host",
		"wss://sema.example":             "https://host",
		"https://":                       "https://host",
		"https:sema.example":             "https://host",
		"https://sema.example/?x=1":      "query",
		"https://sema.example?":          "query",
		"https://sema.example/#a":        "fragment",
		"https://sema.example/a/../b":    "simplest",
		"https://sema.example/a//b":      "simplest",
		"http://sema.example":            "--allow-insecure",
		"http://localhost.evil.example":  "--allow-insecure",
		"http://127.0.0.1.evil.example":  "--allow-insecure",
		"http://10.0.0.1":                "--allow-insecure",
		"https://user:hunter2@sema.test": "credential",
		"https://sema.example:port":      "not an address",
		"https://sema.example:65536":     "65535",
		"https://sema.example:0":         "65535",
		"https://a b":                    "not an address",
	}
	for raw, word := range cases {
		_, err := enroll.ParseServer(raw, false)
		if err == nil {
			t.Errorf("%q was taken", raw)
			continue
		}
		if enroll.ExitCode(err) != 2 || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v (exit %d)", raw, err, enroll.ExitCode(err))
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("shows a password: %v", err)
		}
	}
	if _, err := enroll.ParseServer("https://user:hunter2@a b", false); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}
