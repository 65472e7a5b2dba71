package enroll

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// hidden stands for a secret wherever one would have been shown.
const hidden = "[hidden]"

// secret holds text that must not be printed: in a closure, because fmt and
// reflection-based printers read unexported fields without asking methods.
type secret struct {
	reveal func() string
}

func newSecret(s string) secret { return secret{reveal: func() string { return s }} }

// IsZero reports whether there is no secret here.
func (s secret) IsZero() bool { return s.reveal == nil }

// String implements fmt.Stringer.
func (secret) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (secret) GoString() string { return hidden }

// Format implements fmt.Formatter, so that no verb shows the secret.
func (secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalJSON implements json.Marshaler.
func (secret) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }

// MarshalText implements encoding.TextMarshaler.
func (secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue implements slog.LogValuer.
func (secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// Credential is the user's bearer credential for the two enrollment calls. The
// zero value is no credential.
type Credential struct{ secret }

// NewCredential takes the text of a credential, less the line ends around it.
// Empty text is no credential. The error never quotes the text.
func NewCredential(text string) (Credential, error) {
	text = strings.Trim(text, "\r\n")
	if text == "" {
		return Credential{}, nil
	}
	for i := 0; i < len(text); i++ {
		if text[i] <= ' ' || text[i] > '~' {
			return Credential{}, &UsageError{What: "credential",
				Err: errors.New("it holds a space, a line end or another character that a bearer credential cannot have")}
		}
	}
	return Credential{newSecret(text)}, nil
}

// Token is a one-shot enrollment token. The zero value is no token.
type Token struct{ secret }

// maxTokenChars is the protocol's limit, in characters.
const maxTokenChars = 256

// NewToken takes the text of a token, less the line ends around it. The error
// never quotes the text.
func NewToken(text string) (Token, error) {
	text = strings.Trim(text, "\r\n")
	if !utf8.ValidString(text) {
		return Token{}, &UsageError{What: "enrollment token", Err: errors.New("it is not valid UTF-8")}
	}
	if n := utf8.RuneCountInString(text); n < 1 || n > maxTokenChars {
		return Token{}, &UsageError{What: "enrollment token",
			Err: fmt.Errorf("it has %d characters; a token has 1 to %d", n, maxTokenChars)}
	}
	return Token{newSecret(text)}, nil
}

// digest names a token in a file without giving it away: tokens are random, and
// the server itself stores no more than this.
func (t Token) digest() string {
	sum := sha256.Sum256([]byte(t.reveal()))
	return hex.EncodeToString(sum[:])
}
