package enroll_test

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/enroll"
)

func TestTokensAndCredentialsCannotBeShown(t *testing.T) {
	type closed struct {
		token      enroll.Token
		credential enroll.Credential
	}
	c, k := credential(t), token(t)
	values := []any{c, k, &c, &k, closed{k, c}, &closed{k, c}, []enroll.Token{k}, map[string]any{"c": c},
		enroll.Request{Token: k, Credential: c}, registration(t)}
	for _, v := range values {
		var shown []string
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b"} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "v", v)
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "v", v)
		if j, err := json.Marshal(v); err == nil {
			b.Write(j)
		}
		if x, err := xml.Marshal(v); err == nil {
			b.Write(x)
		}
		if err := gob.NewEncoder(&b).Encode(v); err != nil {
			b.WriteString(err.Error())
		}
		shown = append(shown, b.String(), fmt.Errorf("e: %v", v).Error())
		for _, text := range shown {
			for _, s := range []string{theCredential, theToken} {
				if strings.Contains(text, s) || strings.Contains(strings.ToLower(text), hex.EncodeToString([]byte(s))) {
					t.Errorf("%T shows %s: %q", v, s, text)
				}
			}
		}
	}
	if got := fmt.Sprintf("%s %v", c, k); got != "[hidden] [hidden]" {
		t.Errorf("got %q", got)
	}
}

func TestTokensAreOneTo256CharactersWithoutLineEnds(t *testing.T) {
	for _, text := range []string{"x", theToken + "\n", "\r\n" + theToken + "\r\n", strings.Repeat("é", 256)} {
		if _, err := enroll.NewToken(text); err != nil {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for _, text := range []string{"", "\n", strings.Repeat("t", 257), "marked\xff"} {
		_, err := enroll.NewToken(text)
		if enroll.ExitCode(err) != 2 || strings.Contains(fmt.Sprint(err), "marked") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

func TestCredentialsThatCannotBeAHeaderAreRefused(t *testing.T) {
	for _, text := range []string{"marked secret", "marked\nsecret", "marked\x00", "markedé", "marked\x7f"} {
		_, err := enroll.NewCredential(text)
		if enroll.ExitCode(err) != 2 || strings.Contains(fmt.Sprint(err), "marked") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if c, err := enroll.NewCredential("\n"); err != nil || !c.IsZero() {
		t.Errorf("an empty file is no credential: %v", err)
	}
}
