package handshake

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// redacted stands for a private key wherever one would have been shown.
const redacted = "[private key]"

// PrivateKey is a device's Ed25519 key (§1.1). It signs hellos and nothing
// else, and every way of printing or marshalling it yields a placeholder. Two
// keys are compared by their Public halves. The zero value is no key.
type PrivateKey struct {
	// The key lives in a closure because fmt and reflection-based printers
	// read unexported fields without asking the methods below.
	reveal func() ed25519.PrivateKey
}

// GenerateKey makes a key from 32 bytes of random.
func GenerateKey(random io.Reader) (PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return PrivateKey{}, fmt.Errorf("make a device key: %w", err)
	}
	return KeyFromSeed(seed)
}

// KeyFromSeed rebuilds a key from the 32 bytes ExportSeed gave. Its errors
// never quote the seed.
func KeyFromSeed(seed []byte) (PrivateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return PrivateKey{}, fmt.Errorf("a device key is a seed of %d bytes, not of %d", ed25519.SeedSize, len(seed))
	}
	key := ed25519.NewKeyFromSeed(seed)
	return PrivateKey{reveal: func() ed25519.PrivateKey { return key }}, nil
}

// IsZero reports whether k holds no key.
func (k PrivateKey) IsZero() bool { return k.reveal == nil }

// Public returns the half that the server knows. It panics on a zero key.
func (k PrivateKey) Public() PublicKey {
	return PublicKey(k.reveal().Public().(ed25519.PublicKey))
}

// ExportSeed returns a copy of the secret itself: for key stores, which put it
// at rest, and for nobody else. It panics on a zero key.
func (k PrivateKey) ExportSeed() []byte { return k.reveal().Seed() }

func (k PrivateKey) sign(message []byte) []byte { return ed25519.Sign(k.reveal(), message) }

// String implements fmt.Stringer.
func (PrivateKey) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (PrivateKey) GoString() string { return redacted }

// Format implements fmt.Formatter, so that no verb shows the key.
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalJSON implements json.Marshaler.
func (PrivateKey) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (PrivateKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (PrivateKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// PublicKey is the half of a device's key that the server stores. Its text is
// standard base64 of the 32 raw bytes: 44 characters.
type PublicKey [ed25519.PublicKeySize]byte

// errPublicKey says what ParsePublicKey takes.
var errPublicKey = errors.New("a public key is the standard base64 of 32 bytes (44 characters)")

// ParsePublicKey reads the text that String writes, and no other spelling.
func ParsePublicKey(s string) (PublicKey, error) {
	var k PublicKey
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(k) || base64.StdEncoding.EncodeToString(b) != s {
		return PublicKey{}, errPublicKey
	}
	copy(k[:], b)
	return k, nil
}

// String returns the key as standard base64.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// MarshalText implements encoding.TextMarshaler.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *PublicKey) UnmarshalText(text []byte) error {
	parsed, err := ParsePublicKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}
