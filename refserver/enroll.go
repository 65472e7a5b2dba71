package refserver

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxBodyBytes is far above any valid enrollment body.
const maxBodyBytes = 64 << 10

// bodyField is one member of a closed body.
type bodyField struct {
	name     string
	required bool
	check    func(string) error
}

var enrollFields = []bodyField{
	{"token", true, func(v string) error {
		if n := utf8.RuneCountInString(v); n < 1 || n > 256 {
			return fmt.Errorf("has %d characters, not 1 to 256", n)
		}
		return nil
	}},
	{"pubkey", true, checkPubkey},
	{"platformOs", true, func(v string) error {
		if v != "darwin" && v != "linux" {
			return fmt.Errorf("is neither darwin nor linux")
		}
		return nil
	}},
	{"platformArch", false, atMost(32)},
	{"displayName", false, atMost(255)},
	{"workspaceRoot", true, func(v string) error {
		if v == "" {
			return fmt.Errorf("is empty")
		}
		return atMost(1024)(v)
	}},
}

func atMost(n int) func(string) error {
	return func(v string) error {
		if len(v) > n {
			return fmt.Errorf("has %d bytes, above %d", len(v), n)
		}
		return nil
	}
}

func checkPubkey(v string) error {
	if v == "" || len(v) > 128 {
		return fmt.Errorf("has %d bytes, not 1 to 128", len(v))
	}
	if strings.ContainsFunc(v, unicode.IsControl) || strings.TrimSpace(v) != v {
		return fmt.Errorf("holds control characters or surrounding whitespace")
	}
	if b, ok := canonicalBase64(v); !ok || len(b) != ed25519.PublicKeySize {
		return fmt.Errorf("is not the standard base64 of 32 bytes")
	}
	return nil
}

// readBody reads a closed JSON object of string members. An empty body is an
// empty object where emptyOK.
func readBody(r *http.Request, emptyOK bool, fields []bodyField) (map[string]string, *failure) {
	raw, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	if err != nil {
		return nil, &failure{status: 400, code: "request.invalid_json", message: "the body could not be read"}
	}
	if len(raw) == 0 && emptyOK {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, &failure{status: 400, code: "request.invalid_json", message: "the body is not JSON"}
	}
	var members map[string]json.RawMessage // a map: member names match exactly
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, &failure{status: 400, code: "request.body_shape", message: "the body is not an object"}
	}
	return checkBody(members, fields)
}

func checkBody(members map[string]json.RawMessage, fields []bodyField) (map[string]string, *failure) {
	known := map[string]bool{}
	for _, f := range fields {
		known[f.name] = true
		if _, ok := members[f.name]; f.required && !ok {
			return nil, &failure{status: 400, code: "request.body_shape", message: "missing key: " + f.name}
		}
	}
	for name := range members {
		if !known[name] {
			return nil, &failure{status: 400, code: "request.body_shape", message: "unknown key: " + name}
		}
	}
	values := map[string]string{}
	for _, f := range fields {
		raw, ok := members[f.name]
		if !ok {
			continue
		}
		var v *string // null is not a string
		if err := json.Unmarshal(raw, &v); err != nil || v == nil {
			return nil, &failure{status: 400, code: "request.field_invalid", message: f.name + ": is not a string"}
		}
		if err := f.check(*v); err != nil {
			return nil, &failure{status: 400, code: "request.field_invalid", message: f.name + ": " + err.Error()}
		}
		values[f.name] = *v
	}
	return values, nil
}

// serveEnroll registers a device (§1.1 step 3).
func (s *Server) serveEnroll(w http.ResponseWriter, r *http.Request) {
	identity, refused := s.admitRequest(r, bucketRegister)
	if refused != nil {
		refused.write(w)
		return
	}
	body, refused := readBody(r, false, enrollFields)
	if refused != nil {
		refused.write(w)
		return
	}
	id, reason := s.register(identity, body)
	if reason != "" {
		// One answer for all four reasons: no oracle for guessing tokens.
		(&failure{status: http.StatusForbidden, code: "device.enrollment_invalid",
			message: "the enrollment token is not valid"}).write(w)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		DeviceID string `json:"deviceId"`
	}{id})
}

func (s *Server) register(identity string, body map[string]string) (id string, refused Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[digestOf(body["token"])]
	switch {
	case t == nil:
		refused = TokenUnknown
	case t.identity != identity:
		refused = TokenForeign
	case t.pubkey == body["pubkey"]:
		return t.deviceID, "" // a retry after a lost answer
	case t.pubkey != "":
		refused = TokenReused
	case !s.cfg.Now().Before(t.expires):
		refused = TokenExpired
	}
	if refused != "" {
		s.record(Violation{Reason: refused, Refused: true, Excused: refused != TokenReused, Type: enrollPath,
			Detail: "answered 403 device.enrollment_invalid"})
		return "", refused
	}
	pub, _ := canonicalBase64(body["pubkey"]) // checkPubkey held it valid
	d := s.addDevice(DeviceRecord{Identity: identity, PublicKey: pub, OS: body["platformOs"], Arch: body["platformArch"],
		Name: body["displayName"], WorkspaceRoot: body["workspaceRoot"]})
	t.pubkey, t.deviceID = body["pubkey"], d.ID
	return d.ID, ""
}
