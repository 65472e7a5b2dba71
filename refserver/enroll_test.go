package refserver_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
)

// office is a server whose clock a test turns by hand.
type office struct {
	t   *testing.T
	s   *refserver.Server
	now time.Time
}

func newOffice(t *testing.T, cfg refserver.Config) *office {
	o := &office{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	cfg.Now = func() time.Time { return o.now }
	o.s = refserver.New(cfg)
	t.Cleanup(func() { _ = o.s.Close() })
	return o
}

func (o *office) call(method, path, credential, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	w := httptest.NewRecorder()
	o.s.ServeHTTP(w, r)
	return w
}

func (o *office) token(credential string) string {
	o.t.Helper()
	w := o.call("POST", "/v1/devices/enroll-tokens", credential, "")
	var a struct{ Token string }
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != 200 || a.Token == "" {
		o.t.Fatalf("token: %d %s %v", w.Code, w.Body, err)
	}
	return a.Token
}

func pubkey(n byte) string { return base64.StdEncoding.EncodeToString(append(make([]byte, 31), n)) }

func registration(token string, key byte) map[string]any {
	return map[string]any{"token": token, "pubkey": pubkey(key), "platformOs": "linux", "workspaceRoot": root}
}

func (o *office) enroll(credential string, body map[string]any) *httptest.ResponseRecorder {
	o.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.call("POST", "/v1/devices/enroll", credential, string(b))
}

// refusal is the errorCode and message of an answer.
func refusal(t *testing.T, w *httptest.ResponseRecorder) (code, message string) {
	t.Helper()
	var a struct{ ErrorCode, Message string }
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%d %q: %v", w.Code, w.Body, err)
	}
	return a.ErrorCode, a.Message
}

func TestCapabilitiesDescribeTheLane(t *testing.T) {
	o := newOffice(t, refserver.Config{WSPath: "/elsewhere", MaxInflight: 9})
	var a struct {
		DeviceExecutor struct {
			Enabled                               bool
			ProtocolVersion, MaxInflightPerDevice int
			WSPath                                string
			Management                            any
		}
	}
	w := o.call("GET", "/v1/capabilities", "", "")
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	d := a.DeviceExecutor
	if !d.Enabled || d.ProtocolVersion != 1 || d.MaxInflightPerDevice != 9 || d.WSPath != "/elsewhere" || d.Management == nil {
		t.Fatalf("%s", w.Body)
	}
}

func TestADeploymentWithoutTheLaneSaysSo(t *testing.T) {
	o := newOffice(t, refserver.Config{Disabled: true})
	if w := o.call("GET", "/v1/capabilities", "", ""); strings.TrimSpace(w.Body.String()) != `{"deviceExecutor":false}` {
		t.Errorf("capabilities: %s", w.Body)
	}
	for _, path := range []string{"/v1/devices/enroll-tokens", "/v1/devices/enroll"} {
		w := o.call("POST", path, "alice", "")
		if code, _ := refusal(t, w); w.Code != 501 || code != "capability.device_lane_required" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := o.call("GET", "/v1/device/ws", "", ""); w.Code != 404 {
		t.Errorf("upgrade: %d", w.Code)
	}
}

func TestATokenIsIssuedToAnEmptyBodyOnly(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	for i, c := range []struct {
		body, code string
		status     int
	}{
		{"", "", 200},
		{"{}", "", 200},
		{`{"deviceId":"x"}`, "request.body_shape", 400},
		{`{"":null}`, "request.body_shape", 400},
		{`[]`, "request.body_shape", 400},
		{`null`, "request.body_shape", 400},
		{`{`, "request.invalid_json", 400},
		{`hello`, "request.invalid_json", 400},
	} {
		w := o.call("POST", "/v1/devices/enroll-tokens", fmt.Sprint("caller", i), c.body)
		if w.Code != c.status {
			t.Errorf("%q: %d %s", c.body, w.Code, w.Body)
		}
		if c.code != "" {
			if code, _ := refusal(t, w); code != c.code {
				t.Errorf("%q: %s", c.body, w.Body)
			}
		}
	}
	var a struct {
		Token, ExpiresAt string
		TTLSec           int
	}
	w := o.call("POST", "/v1/devices/enroll-tokens", "alice", "")
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || len(a.Token) < 32 || len(a.Token) > 256 ||
		a.ExpiresAt != "2026-03-01T12:15:00.000Z" || a.TTLSec != 900 {
		t.Errorf("%s %v", w.Body, err)
	}
}

func TestARegistrationMintsADeviceID(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	w := o.enroll("alice", registration(o.token("alice"), 1))
	form := regexp.MustCompile(`^\{"deviceId":"dev_[0-7][0-9A-HJKMNP-TV-Z]{25}"\}\n$`)
	if w.Code != 200 || !form.MatchString(w.Body.String()) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got := o.s.Devices(); len(got) != 1 || !strings.Contains(w.Body.String(), got[0]) {
		t.Fatalf("devices %v", got)
	}
}

func TestAReplayOfTokenAndKeyIsTheFirstRegistration(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	body := registration(o.token("alice"), 1)
	first := o.enroll("alice", body)
	o.now = o.now.Add(20 * time.Minute) // past the token's life: a lost answer may be asked for late
	again := o.enroll("alice", body)
	if again.Code != 200 || again.Body.String() != first.Body.String() || len(o.s.Devices()) != 1 {
		t.Fatalf("%d %s, first %s", again.Code, again.Body, first.Body)
	}
}

func TestTheFourRefusedTokensCannotBeToldApart(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	expired := o.token("alice")
	o.now = o.now.Add(900 * time.Second)
	foreign, used := o.token("bob"), o.token("alice")
	if w := o.enroll("alice", registration(used, 1)); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	answers := map[string]*httptest.ResponseRecorder{
		"unknown": o.enroll("alice", registration("no-such-token", 2)),
		"expired": o.enroll("alice", registration(expired, 2)),
		"foreign": o.enroll("alice", registration(foreign, 2)),
		"reused":  o.enroll("alice", registration(used, 2)),
	}
	want := answers["unknown"]
	for name, w := range answers {
		code, _ := refusal(t, w)
		if w.Code != 403 || code != "device.enrollment_invalid" || w.Body.String() != want.Body.String() ||
			!maps.EqualFunc(w.Header(), want.Header(), func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
	var reasons []refserver.Reason
	for _, v := range o.s.Audit() {
		reasons = append(reasons, v.Reason)
	}
	if fmt.Sprint(reasons) != fmt.Sprint([]refserver.Reason{refserver.TokenUnknown, refserver.TokenExpired, refserver.TokenForeign, refserver.TokenReused}) {
		t.Errorf("the operator sees %v", reasons)
	}
	if len(o.s.Violations()) != 1 { // only reuse is a client's fault for certain
		t.Errorf("violations %v", o.s.Violations())
	}
	if len(o.s.Devices()) != 1 {
		t.Errorf("devices %v", o.s.Devices())
	}
}

func TestTheEnrollmentBodyIsClosed(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for i, c := range []struct {
		name   string
		change func(map[string]any)
		code   string
	}{
		{"unknown key", func(b map[string]any) { b["owner"] = "me" }, "request.body_shape"},
		{"key in other case", func(b map[string]any) { b["Token"] = "x" }, "request.body_shape"},
		{"no token", func(b map[string]any) { delete(b, "token") }, "request.body_shape"},
		{"no pubkey", func(b map[string]any) { delete(b, "pubkey") }, "request.body_shape"},
		{"no platformOs", func(b map[string]any) { delete(b, "platformOs") }, "request.body_shape"},
		{"no workspaceRoot", func(b map[string]any) { delete(b, "workspaceRoot") }, "request.body_shape"},
		{"token null", func(b map[string]any) { b["token"] = nil }, "request.field_invalid"},
		{"token empty", func(b map[string]any) { b["token"] = "" }, "request.field_invalid"},
		{"token 257", func(b map[string]any) { b["token"] = long(257) }, "request.field_invalid"},
		{"token number", func(b map[string]any) { b["token"] = 1 }, "request.field_invalid"},
		{"pubkey empty", func(b map[string]any) { b["pubkey"] = "" }, "request.field_invalid"},
		{"pubkey 31 bytes", func(b map[string]any) { b["pubkey"] = base64.StdEncoding.EncodeToString(make([]byte, 31)) }, "request.field_invalid"},
		{"pubkey unpadded", func(b map[string]any) { b["pubkey"] = pubkey(1)[:43] }, "request.field_invalid"},
		{"pubkey with space", func(b map[string]any) { b["pubkey"] = " " + pubkey(1) }, "request.field_invalid"},
		{"pubkey with newline", func(b map[string]any) { b["pubkey"] = pubkey(1) + "\n" }, "request.field_invalid"},
		{"pubkey 129", func(b map[string]any) { b["pubkey"] = long(129) }, "request.field_invalid"},
		{"windows", func(b map[string]any) { b["platformOs"] = "windows" }, "request.field_invalid"},
		{"Linux", func(b map[string]any) { b["platformOs"] = "Linux" }, "request.field_invalid"},
		{"arch 33", func(b map[string]any) { b["platformArch"] = long(33) }, "request.field_invalid"},
		{"name 256", func(b map[string]any) { b["displayName"] = long(256) }, "request.field_invalid"},
		{"name bytes, not characters", func(b map[string]any) { b["displayName"] = strings.Repeat("é", 128) }, "request.field_invalid"},
		{"root empty", func(b map[string]any) { b["workspaceRoot"] = "" }, "request.field_invalid"},
		{"root 1025", func(b map[string]any) { b["workspaceRoot"] = long(1025) }, "request.field_invalid"},
		{"all at their limits", func(b map[string]any) {
			b["platformArch"], b["displayName"], b["workspaceRoot"], b["platformOs"] = long(32), long(255), long(1024), "darwin"
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOffice(t, refserver.Config{})
			body := registration(o.token("alice"), byte(i))
			c.change(body)
			w := o.enroll("alice", body)
			if c.code == "" {
				if w.Code != 200 {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
				return
			}
			if code, message := refusal(t, w); w.Code != 400 || code != c.code || message == "" {
				t.Fatalf("%d %s, want 400 %s", w.Code, w.Body, c.code)
			}
		})
	}
	o := newOffice(t, refserver.Config{})
	for body, want := range map[string]string{"": "request.invalid_json", "{": "request.invalid_json", "[]": "request.body_shape", `"x"`: "request.body_shape", "null": "request.body_shape"} {
		w := o.call("POST", "/v1/devices/enroll", "alice", body)
		if code, _ := refusal(t, w); w.Code != 400 || code != want {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestACallerWithoutIdentityIsForbidden(t *testing.T) {
	o := newOffice(t, refserver.Config{Identify: func(r *http.Request) (string, bool) {
		return "alice", r.Header.Get("Authorization") == "Bearer good"
	}})
	for _, credential := range []string{"", "bad"} {
		for _, path := range []string{"/v1/devices/enroll-tokens", "/v1/devices/enroll"} {
			w := o.call("POST", path, credential, "")
			if code, _ := refusal(t, w); w.Code != 403 || code != "auth.forbidden" {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
	o.token("good")
}

func TestEachEnrollmentEndpointHasABudgetOfTenAMinute(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	token := o.token("alice")
	for range 9 {
		o.token("alice")
	}
	o.now = o.now.Add(10*time.Second + time.Millisecond)
	w := o.call("POST", "/v1/devices/enroll-tokens", "alice", "")
	if code, _ := refusal(t, w); w.Code != 429 || code != "limit.rate_exceeded" || w.Header().Get("Retry-After") != "50" {
		t.Fatalf("the eleventh: %d %v %s", w.Code, w.Header(), w.Body)
	}
	o.token("bob") // another identity has its own

	// Registering has its own bucket, and refused attempts count, whatever their body.
	for i := range 10 {
		if w := o.call("POST", "/v1/devices/enroll", "alice", "{"); w.Code != 400 {
			t.Fatalf("attempt %d: %d %s", i, w.Code, w.Body)
		}
	}
	w = o.enroll("alice", registration(token, 1))
	if w.Code != 429 || w.Header().Get("Retry-After") != "60" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	o.now = o.now.Add(59*time.Second + 500*time.Millisecond)
	if w := o.enroll("alice", registration(token, 1)); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
		t.Fatalf("half a second before the window's end: %d %v", w.Code, w.Header())
	}
	o.now = o.now.Add(500 * time.Millisecond)
	if w := o.enroll("alice", registration(token, 1)); w.Code != 200 {
		t.Fatalf("a refused attempt burned the token: %d %s", w.Code, w.Body)
	}
}

func TestAnUnavailableLimiterRefuses(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	token := o.token("alice")
	o.s.SetLimiterUnavailable(true)
	for _, path := range []string{"/v1/devices/enroll-tokens", "/v1/devices/enroll"} {
		w := o.call("POST", path, "alice", "")
		if code, _ := refusal(t, w); w.Code != 429 || code != "limit.rate_exceeded" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	o.s.SetLimiterUnavailable(false)
	if w := o.enroll("alice", registration(token, 1)); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestOtherPathsAndMethodsAreRefused(t *testing.T) {
	o := newOffice(t, refserver.Config{})
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 404}, {"GET", "/v1/device/ws/", 404}, {"GET", "/v1/device", 404},
		{"POST", "/v1/capabilities", 405}, {"GET", "/v1/devices/enroll", 405}, {"POST", "/v1/device/ws", 405},
	} {
		if w := o.call(c.method, c.path, "alice", ""); w.Code != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.status)
		}
	}
}
