package refserver

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"testing"

	"github.com/sema-agent/device-executor/wire"
)

// The protocol's published vector (§1.3).
const (
	vectorNonce  = "bm9uY2UtdGVzdC12ZWN0b3I="
	vectorDevice = "dev_01J8ZQ4T9X0000000000000000"
	vectorEpoch  = "01J8ZQ4T9X7M3K5N6P8R0S2V4W"
	vectorHex    = "73656d612e6465766963652e68656c6c6f2e763100000018626d3975593255746447567a644331325a574e306233493d" +
		"0000001e6465765f30314a385a51345439583030303030303030303030303030303001923f72693d3d0732d4d64601916c9c00000001"
)

func vectorBytes(t *testing.T) []byte {
	t.Helper()
	want, err := hex.DecodeString(vectorHex)
	if err != nil || len(want) != 102 {
		t.Fatalf("the vector has %d bytes: %v", len(want), err)
	}
	return want
}

func TestTheSignedBytesAreThePublishedVector(t *testing.T) {
	epoch, ok := decodeULID(vectorEpoch)
	if !ok {
		t.Fatal("the vector's epoch was refused")
	}
	if got := signedBytes(vectorNonce, vectorDevice, epoch, 1); !bytes.Equal(got, vectorBytes(t)) {
		t.Fatalf("got %x", got)
	}
}

func TestASignatureOverAnyOtherByteIsRefused(t *testing.T) {
	payload := vectorBytes(t)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	pub := key.Public().(ed25519.PublicKey)
	holds := func(signed []byte) bool {
		return signatureHolds(&wire.Hello{ProtocolVersion: 1, DeviceID: vectorDevice, Epoch: vectorEpoch,
			SignatureB64: base64.StdEncoding.EncodeToString(ed25519.Sign(key, signed))}, vectorNonce, pub)
	}
	if !holds(payload) {
		t.Fatal("the true signature was refused")
	}
	for i := range payload {
		payload[i] ^= 1
		if holds(payload) {
			t.Errorf("byte %d flipped: accepted", i)
		}
		payload[i] ^= 1
	}
	if holds(payload[:101]) || holds(append(payload[:102:102], 0)) {
		t.Error("a shorter or longer text was accepted")
	}
}

func TestSignaturesAreCanonicalBase64Of64Bytes(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	pub := key.Public().(ed25519.PublicKey)
	sig := base64.StdEncoding.EncodeToString(ed25519.Sign(key, vectorBytes(t)))
	for name, s := range map[string]string{
		"empty": "", "no padding": sig[:86], "line break": sig[:4] + "\n" + sig[4:], "url alphabet": base64.URLEncoding.EncodeToString([]byte(sig)),
		"loose last bits": sig[:85] + string(sig[85]+1) + "==", "63 bytes": base64.StdEncoding.EncodeToString(make([]byte, 63)),
	} {
		if signatureHolds(&wire.Hello{ProtocolVersion: 1, DeviceID: vectorDevice, Epoch: vectorEpoch, SignatureB64: s}, vectorNonce, pub) {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestEpochsAreJudgedBySpelling(t *testing.T) {
	for _, c := range []struct {
		name, epoch string
		ok          bool
	}{
		{"the vector's", vectorEpoch, true},
		{"Z last", "01J8ZQ4T9X7M3K5N6P8R0S2V4Z", true},
		{"7 first", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", true},
		{"all zeros", "00000000000000000000000000", true},
		{"lower case", "01j8zq4t9x7m3k5n6p8r0s2v4w", false},
		{"8 first", "81J8ZQ4T9X7M3K5N6P8R0S2V4W", false},
		{"A first", "A1J8ZQ4T9X7M3K5N6P8R0S2V4W", false},
		{"Z first", "Z1J8ZQ4T9X7M3K5N6P8R0S2V4W", false},
		{"25", vectorEpoch[:25], false},
		{"27", vectorEpoch + "0", false},
		{"I", "01J8ZQ4T9X7M3K5N6P8R0S2V4I", false},
		{"L", "01J8ZQ4T9X7M3K5N6P8R0S2V4L", false},
		{"O", "01J8ZQ4T9X7M3K5N6P8R0S2V4O", false},
		{"U", "01J8ZQ4T9X7M3K5N6P8R0S2V4U", false},
		{"empty", "", false},
	} {
		b, ok := decodeULID(c.epoch)
		if ok != c.ok {
			t.Errorf("%s: accepted %t", c.name, ok)
		}
		if ok && encodeULID(b) != c.epoch {
			t.Errorf("%s: %s comes back as %s", c.name, c.epoch, encodeULID(b))
		}
	}
}

// FuzzULID holds that what decodes is spelled in exactly one way.
func FuzzULID(f *testing.F) {
	f.Add(vectorEpoch)
	f.Add("01j8zq4t9x7m3k5n6p8r0s2v4w")
	f.Fuzz(func(t *testing.T, s string) {
		if b, ok := decodeULID(s); ok && encodeULID(b) != s {
			t.Fatalf("%q comes back as %q", s, encodeULID(b))
		}
	})
}
