package enroll

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzRecord: what is read is sound, and writing it and reading it again
// changes nothing.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"deviceId":"dev_1","server":"https://sema.example/p","wsPath":"/v1/device/ws","workspaceRoot":"/w",` +
		`"publicKey":"doiRTQOplP+UZk5Yu6yR0RZdrrtXtISSXEAjJ7tsrwY=","keyStore":"file","name":"n","enrolledAt":"2026-03-01T12:00:00Z",` +
		`"writeFaces":["writeFileGuarded"],"revokedAt":"2026-03-02T12:00:00+02:00","tokenDigest":"00","later":{"a":[1.0]}}`))
	f.Add([]byte(`{"server":"http://h","allowInsecure":true}`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data, "/d")
		if err != nil {
			return
		}
		first, err := r.encode()
		if err != nil {
			t.Fatalf("%q is read and cannot be written: %v", data, err)
		}
		again, err := decodeRecord(first, "/d")
		if err != nil {
			t.Fatalf("%q is written as %s: %v", data, first, err)
		}
		second, err := again.encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s becomes %s, %v", first, second, err)
		}
	})
}

// FuzzAnswer: whatever a server answers becomes what was asked for or one
// printable line.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"deviceId":"dev_1","token":"t","deviceExecutor":{"enabled":true,"protocolVersion":1,"wsPath":"/w"}}`, "1", "/x", "application/json")
	f.Add(403, `{"errorCode":"device.enrollment_invalid","message":"no\u001b[2J"}`, "", "", "")
	f.Add(429, `{"error":{"errorCode":"x","message":7}}`, "Sun, 01 Mar 2026 12:00:00 GMT", "", "text/html; charset=x")
	f.Add(307, "<html>", "99999999999999999999", "\x1b]8;;http://x\x07", "text/html")
	f.Fuzz(func(t *testing.T, status int, body, retry, location, kind string) {
		a := &answer{url: "https://sema.example/v1", status: status, body: []byte(body), received: time.Unix(1.7e9, 0),
			header: http.Header{"Retry-After": {retry}, "Location": {location}, "Content-Type": {kind}}}
		id, idErr := a.deviceID()
		token, tokenErr := a.token()
		lane, laneErr := a.lane()
		if idErr == nil && !idForm.MatchString(id) {
			t.Errorf("the id %q", id)
		}
		if tokenErr == nil && token.IsZero() {
			t.Error("no token and no error")
		}
		if laneErr == nil && (!validWSPath(lane.WSPath) || lane.ProtocolVersion < 1) {
			t.Errorf("the lane %+v", lane)
		}
		for _, err := range []error{idErr, tokenErr, laneErr} {
			if err == nil {
				continue
			}
			text := err.Error() + Advice(err)
			if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > 4096 {
				t.Errorf("not a line for people: %q", text)
			}
			if code := ExitCode(err); code != exitRefused && code != exitUnexpected {
				t.Errorf("exit code %d", code)
			}
		}
		if d := a.retryAfter(); d < 0 {
			t.Errorf("wait %s", d)
		}
	})
}

// FuzzParseServer: an accepted address is in its only spelling, and hides
// nothing.
func FuzzParseServer(f *testing.F) {
	for _, s := range []string{"https://sema.example:443/a%2Fb//", "http://[::1]:80", "https://u:p@h", "https://h/@", "HTTPS://H?", "http://127.0.0.1:0/."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := ParseServer(raw, false)
		if err != nil {
			return
		}
		again, err := ParseServer(s.String(), false)
		if err != nil || again != s {
			t.Fatalf("%q is %q, which is %q, %v", raw, s, again, err)
		}
		u, err := url.Parse(s.String())
		if err != nil || u.User != nil || s.Insecure() || strings.ContainsAny(s.String(), "?#") || !strings.HasPrefix(s.WebSocketURL(""), "ws") {
			t.Fatalf("%q is %q", raw, s)
		}
	})
}
