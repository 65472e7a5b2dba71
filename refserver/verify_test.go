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
