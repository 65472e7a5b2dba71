package handshake_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sema-agent/device-executor/handshake"
)

func newKey(t testing.TB) handshake.PrivateKey {
	t.Helper()
	key, err := handshake.KeyFromSeed(bytes.Repeat([]byte{0xA7, 0x5C}, 16))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// spellings are the forms in which a leaked key would be recognized.
func spellings(key handshake.PrivateKey) []string {
	seed := key.ExportSeed()
	list := []string{hex.EncodeToString(seed), strings.ToUpper(hex.EncodeToString(seed)),
		base64.StdEncoding.EncodeToString(seed), base64.RawURLEncoding.EncodeToString(seed),
		fmt.Sprint(seed), fmt.Sprintf("%#v", seed), string(seed), fmt.Sprintf("%q", seed)}
	for i, s := range list {
		list[i] = s[:12] // a part is a leak too
		if strings.HasPrefix(s, "[]byte{") {
			list[i] = s[7:19]
		}
	}
	return list
}

func TestAPrivateKeyCannotBeShown(t *testing.T) {
	key := newKey(t)
	type named struct{ Key handshake.PrivateKey }
	type closed struct{ key handshake.PrivateKey }
	identity := handshake.Identity{DeviceID: "dev_1", Key: key}
	values := map[string]any{
		"key": key, "pointer": &key, "field": named{key}, "unexported field": closed{key}, "pointer to struct": &closed{key},
		"slice": []handshake.PrivateKey{key}, "map": map[string]handshake.PrivateKey{"k": key}, "identity": identity,
	}
	shown := map[string]string{}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%c", "%t", "%p", "%T", "%w"} {
			shown[name+" "+verb] = fmt.Sprintf(verb, v)
		}
		shown[name+" Print"] = fmt.Sprint(v)
		shown[name+" error"] = fmt.Errorf("with %v: %w", v, errors.New("x")).Error()
		for format, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(handler(&b)).Info("m", "k", v, slog.Group("g", "k", v))
			shown[name+" slog "+format] = b.String()
		}
		if b, err := json.Marshal(v); err == nil {
			shown[name+" json"] = string(b)
		}
		if b, err := xml.Marshal(v); err == nil {
			shown[name+" xml"] = string(b)
		}
		var b bytes.Buffer
		if err := gob.NewEncoder(&b).Encode(v); err == nil {
			shown[name+" gob"] = b.String()
		}
	}
	for _, raw := range []string{fmt.Sprintf("%v", key.ExportSeed()), fmt.Sprintf("%x", key.ExportSeed()), fmt.Sprintf("%#v", key.ExportSeed())} {
		seen := false
		for _, leak := range spellings(key) {
			seen = seen || strings.Contains(raw, leak)
		}
		if !seen {
			t.Fatalf("this test would not see %q", raw)
		}
	}
	for how, text := range shown {
		for _, leak := range spellings(key) {
			if strings.Contains(text, leak) {
				t.Errorf("%s shows the key: %.80q", how, text)
			}
		}
	}
	for _, how := range []string{"key %v", "key %+v", "key %#v", "key %s", "key %x", "key %d", "key %q"} {
		if shown[how] != "[private key]" {
			t.Errorf("%s prints %q", how, shown[how])
		}
	}
	if shown["key json"] != `"[private key]"` {
		t.Errorf("json: %s", shown["key json"])
	}
	if b, err := key.MarshalText(); err != nil || string(b) != "[private key]" {
		t.Errorf("text: %q, %v", b, err)
	}
	for _, format := range []string{"text", "json"} {
		if !strings.Contains(shown["key slog "+format], "[private key]") {
			t.Errorf("slog %s: %s", format, shown["key slog "+format])
		}
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(key); err == nil && strings.Contains(b.String(), string(key.ExportSeed())) {
		t.Error("gob carries the key")
	}
}

func TestKeyErrorsDoNotQuoteTheSeed(t *testing.T) {
	seed := []byte("the seed that must not be quoted, too long")
	_, err := handshake.KeyFromSeed(seed)
	if err == nil || strings.Contains(err.Error(), "must not") {
		t.Errorf("got %v", err)
	}
	if _, err := handshake.KeyFromSeed(nil); err == nil {
		t.Error("a key of no bytes")
	}
}

func TestAKeySurvivesItsStore(t *testing.T) {
	key, err := handshake.GenerateKey(strings.NewReader(strings.Repeat("x", 64)))
	if err != nil {
		t.Fatal(err)
	}
	seed := key.ExportSeed()
	again, err := handshake.KeyFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	if again.Public() != key.Public() {
		t.Error("the public half changed")
	}
	seed[0]++ // ours now: the key must not notice
	if string(key.ExportSeed()) != strings.Repeat("x", 32) {
		t.Error("ExportSeed gives out the key's own memory")
	}
}

func TestGenerateKeyFailsWithoutRandomness(t *testing.T) {
	key, err := handshake.GenerateKey(iotest.DataErrReader(strings.NewReader("only some bytes")))
	if err == nil || !key.IsZero() {
		t.Errorf("%v, %v", key, err)
	}
}

func TestPublicKeysHaveOneSpelling(t *testing.T) {
	public := newKey(t).Public()
	text := public.String()
	if len(text) != 44 {
		t.Errorf("%d characters", len(text))
	}
	if got, err := handshake.ParsePublicKey(text); err != nil || got != public {
		t.Errorf("%v, %v", got, err)
	}
	b, err := json.Marshal(public)
	if err != nil || string(b) != `"`+text+`"` {
		t.Errorf("%s, %v", b, err)
	}
	var back handshake.PublicKey
	if err := json.Unmarshal(b, &back); err != nil || back != public {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []string{"", text[:43], text + "\n", " " + text, strings.TrimRight(text, "="), text[:42] + "!=",
		base64.StdEncoding.EncodeToString(make([]byte, 31)), base64.StdEncoding.EncodeToString(make([]byte, 33)),
		text[:42] + "B=", // stray bits in the last character
		base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 32))} {
		if got, err := handshake.ParsePublicKey(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
		if err := json.Unmarshal([]byte(`"`+bad+`"`), &back); err == nil {
			t.Errorf("%q was unmarshalled", bad)
		}
	}
}
