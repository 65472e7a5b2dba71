package conformance

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var enrollRows = []Row{
	{ID: "enroll-wspath", Section: "intro, §1.2", Promise: "the upgrade path is the one that discovery names", run: enrollWSPath},
	{ID: "enroll-body", Section: "§1.1", Promise: "registration sends the closed body: a 32-byte key in canonical base64, the platform, the workspace root", run: enrollBody},
	{ID: "enroll-lost-answer", Section: "§1.1", Promise: "after a lost answer the same token is only ever sent with the same public key", run: enrollLostAnswer},
	{ID: "enroll-429", Section: "§1.1", Promise: "a 429 is waited out as long as retry-after says, with the same token and the same key", run: enroll429},
	{ID: "enroll-429-cap", Section: "§1.1", Promise: "registration is not tried without end, and never faster than once a second", run: enroll429Cap, limit: 2 * time.Minute},
	{ID: "enroll-403", Section: "§1.1", Promise: "a refused token is not tried again, and enrollment fails", run: func(c *Case) { enrollRefused(c, http.StatusForbidden, "device.enrollment_invalid") }},
	{ID: "enroll-400", Section: "§1.1", Promise: "a request that was wrong is not sent again as it is, and enrollment fails", run: func(c *Case) { enrollRefused(c, http.StatusBadRequest, "request.field_invalid") }},
	{ID: "enroll-501", Section: "§1.1", Promise: "where the server has no device lane there is nothing to try again, and enrollment fails", run: func(c *Case) { enrollRefused(c, http.StatusNotImplemented, "capability.device_lane_required") }},
	{ID: "enroll-no-lane", Section: "intro, §1.1", Promise: "a deployment without the device lane registers nothing, and enrollment fails", run: enrollNoLane},
	{ID: "enroll-429-token", Section: "§1.1", Promise: "issuing a token honours retry-after too", run: enroll429Token},
}

func enrollWSPath(c *Case) {
	calls := c.watchHTTP()
	calls.instead = func(w http.ResponseWriter, path string, _ int) bool {
		to := calls.movedTo.Load()
		if to == nil || path != capabilitiesPath {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"deviceExecutor":{"enabled":true,"protocolVersion":1,"maxInflightPerDevice":4,"wsPath":"`+*to+`","management":{}}}`)
		return true
	}
	c.open(refserver.Config{})
	c.enroll()
	later := "/moved/since/enrollment"
	calls.movedTo.Store(&later)
	c.serve()
	c.active()
}

// registrations decodes the bodies of what was registered.
func registrations(c *Case, calls *httpLog) []map[string]string {
	var bodies []map[string]string
	for _, call := range calls.to(enrollPath) {
		var body map[string]string
		if err := json.Unmarshal([]byte(call.body), &body); err != nil {
			c.stop("the body of %s is not an object of strings: %v", enrollPath, err)
		}
		bodies = append(bodies, body)
	}
	return bodies
}

func enrollBody(c *Case) {
	calls := c.watchHTTP()
	c.open(refserver.Config{}) // refuses any other key, size or form
	c.enroll()
	for _, call := range calls.to(tokenPath) {
		c.expect(strings.Trim(call.body, " {}\r\n\t") == "", "the body of %s is not empty", tokenPath)
	}
	for _, b := range registrations(c, calls) {
		for _, key := range slices.Sorted(maps.Keys(b)) {
			c.expect(slices.Contains([]string{"token", "pubkey", "platformOs", "platformArch", "displayName", "workspaceRoot"}, key),
				"the body of "+enrollPath+" has the key %q, which is none of the closed set (§1.1)", key)
		}
		_, err := wire.DecodeBase64(nil, []byte(b["pubkey"]))
		c.expect(err == nil && len(b["pubkey"]) == 44, "pubkey has %d characters (%v); expected 44 of standard base64: 32 bytes", len(b["pubkey"]), err)
		c.expect(b["platformOs"] == runtime.GOOS, "platformOs is %q, expected %q", b["platformOs"], runtime.GOOS)
		c.expect(b["workspaceRoot"] == c.place.workspace, "workspaceRoot is %q, not %q", b["workspaceRoot"], c.place.workspace)
	}
}

// pairs expects that no token went with two public keys.
func pairs(c *Case, calls *httpLog) {
	keys := map[string]string{}
	for _, b := range registrations(c, calls) {
		if first, known := keys[b["token"]]; known {
			c.expect(first == b["pubkey"], "one token was sent with two public keys")
		}
		keys[b["token"]] = b["pubkey"]
	}
}

func enrollLostAnswer(c *Case) {
	calls := c.watchHTTP()
	calls.lose = func(path string, n int) bool { return path == enrollPath && n == 0 }
	c.open(refserver.Config{})
	if c.runEnroll(2*patience).code() == 0 {
		apart(c, calls.to(enrollPath), time.Second)
	} else { // then the user runs it again
		if x := c.runEnroll(2 * patience); x.code() != 0 {
			c.fail("after a lost answer enrollment never succeeds: %s", strings.Join(x.printed(3), " / "))
		}
	}
	c.expect(len(calls.to(enrollPath)) >= 2, "the answer to the first registration was lost, and it was not sent again")
	pairs(c, calls)
}

// apart expects at least d between consecutive calls.
func apart(c *Case, calls []httpCall, d time.Duration) {
	for i := 1; i < len(calls); i++ {
		// The clock of the answer starts when it was noted, a moment before the
		// client has it.
		gap := calls[i].at.Sub(calls[i-1].at)
		c.expect(gap >= d-20*time.Millisecond, "the next try came after %v; expected at least %v", gap.Round(time.Millisecond), d)
	}
}

func enroll429(c *Case) {
	calls := c.watchHTTP()
	calls.instead = func(w http.ResponseWriter, path string, n int) bool {
		if path == enrollPath && n == 0 {
			refusal(w, http.StatusTooManyRequests, "limit.rate_exceeded", "3")
			return true
		}
		return false
	}
	c.open(refserver.Config{})
	c.enroll()
	c.expect(len(calls.to(enrollPath)) == 2, "%d registrations were sent, expected 2: one that got a 429, and one after retry-after", len(calls.to(enrollPath)))
	apart(c, calls.to(enrollPath), 3*time.Second)
	pairs(c, calls)
	if b := registrations(c, calls); len(b) == 2 {
		c.expect(b[0]["token"] == b[1]["token"], "the second try used another token; a 429 does not consume it")
	}
}

func enroll429Token(c *Case) {
	calls := c.watchHTTP()
	calls.instead = func(w http.ResponseWriter, path string, n int) bool {
		if path == tokenPath && n == 0 {
			refusal(w, http.StatusTooManyRequests, "limit.rate_exceeded", "2")
			return true
		}
		return false
	}
	c.open(refserver.Config{})
	x := c.runEnroll(2 * patience)
	if len(calls.to(tokenPath)) == 0 {
		c.skip("the enrolling command brings a token of its own")
	}
	c.expect(x.code() == 0 || len(calls.to(tokenPath)) == 1, "enrollment failed after %d tries for a token, the first of which had retry-after 2", len(calls.to(tokenPath)))
	apart(c, calls.to(tokenPath), 2*time.Second)
}

func enroll429Cap(c *Case) {
	calls := c.watchHTTP()
	calls.instead = func(w http.ResponseWriter, path string, _ int) bool {
		if path == enrollPath {
			refusal(w, http.StatusTooManyRequests, "limit.rate_exceeded", "1")
			return true
		}
		return false
	}
	c.open(refserver.Config{})
	x := c.launch(c.cfg.Enroll, true)
	c.eventually(time.Minute, func() bool { return x.ended() || len(calls.to(enrollPath)) > 10 })
	tries := calls.to(enrollPath)
	c.expect(len(tries) <= 10, "registration was tried %d times; expected at most 10, as ten failures in a minute are not the network (§1.1)", len(tries))
	apart(c, tries, time.Second)
	pairs(c, calls)
	switch n := len(tries); {
	case x.ended():
		c.expect(x.code() != 0, "the enrolling command ended with code 0 though the device was never registered")
	case c.verdict == Fail:
	case n >= 3 && tries[n-1].at.Sub(tries[n-2].at) >= 2*tries[1].at.Sub(tries[0].at):
		c.skip("the enrolling command tries ever more slowly, %d times within a minute; whether it ends was not waited for", n)
	default:
		c.fail("the enrolling command still tries after a minute, %d times so far; expected is an end", n)
	}
}

// enrollRefused has every registration refused for good.
func enrollRefused(c *Case, status int, code string) {
	calls := c.watchHTTP()
	calls.instead = func(w http.ResponseWriter, path string, _ int) bool {
		if path == enrollPath {
			refusal(w, status, code, "")
			return true
		}
		return false
	}
	c.open(refserver.Config{})
	x := c.runEnroll(2 * patience)
	c.expect(x.code() != 0, "the enrolling command ended with code 0 though registration was refused")
	seen := map[string]bool{}
	c.expect(len(calls.to(enrollPath)) > 0, "registration was never tried")
	for _, b := range registrations(c, calls) {
		c.expect(!seen[b["token"]], "a refused token was sent again")
		seen[b["token"]] = true
	}
}

func enrollNoLane(c *Case) {
	calls := c.watchHTTP()
	c.open(refserver.Config{Disabled: true})
	x := c.runEnroll(2 * patience)
	c.expect(x.code() != 0, "the enrolling command ended with code 0 though the server has no device lane")
	c.expect(len(c.server.Devices()) == 0, "a device was registered")
	c.expect(len(calls.to(enrollPath)) <= 1, "registration was tried %d times", len(calls.to(enrollPath)))
}
