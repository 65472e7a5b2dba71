package handshake_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// helloVector is one hello to sign, whichever file it comes from.
type helloVector struct {
	Name, Proves string
	Input        struct {
		SeedHex, Nonce, DeviceID, Epoch string
		ProtocolVersion                 uint32
	}
	Expect struct {
		PublicKeyB64, PayloadHex, SignatureB64 string
	}
}

func loadHellos(t testing.TB) []helloVector {
	t.Helper()
	var file struct {
		Version int
		About   string
		Cases   []helloVector
	}
	if err := testvectors.Load("hello.json", &file); err != nil {
		t.Fatal(err)
	}
	var foreign struct {
		Note   string
		Hellos []struct {
			Name, SeedHex, PublicKeyB64, Nonce, DeviceID, Epoch string
			ProtocolVersion                                     uint32
			PayloadHex, SignatureB64                            string
			PayloadLength                                       int
		}
		Epochs, Base64, DeviceToServer json.RawMessage
	}
	if err := testvectors.Load("foreign.json", &foreign); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 19 || len(foreign.Hellos) != 8 {
		t.Fatalf("%d and %d vectors, not 19 and 8", len(file.Cases), len(foreign.Hellos))
	}
	all := file.Cases
	for _, f := range foreign.Hellos {
		v := helloVector{Name: "foreign " + f.Name}
		v.Input.SeedHex, v.Input.Nonce, v.Input.DeviceID = f.SeedHex, f.Nonce, f.DeviceID
		v.Input.Epoch, v.Input.ProtocolVersion = f.Epoch, f.ProtocolVersion
		v.Expect.PublicKeyB64, v.Expect.PayloadHex, v.Expect.SignatureB64 = f.PublicKeyB64, f.PayloadHex, f.SignatureB64
		if len(f.PayloadHex) != 2*f.PayloadLength {
			t.Errorf("%s: payload of %d hex digits is not %d bytes", v.Name, len(f.PayloadHex), f.PayloadLength)
		}
		all = append(all, v)
	}
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// guide is the protocol's own vector.
const guide = "73656d612e6465766963652e68656c6c6f2e7631" + // the tag
	"00000018" + "626d3975593255746447567a644331325a574e306233493d" + // the nonce
	"0000001e" + "6465765f30314a385a513454395830303030303030303030303030303030" + // the device id
	"01923f72693d3d0732d4d64601916c9c" + "00000001" // the epoch, the version

func TestSignedBytesAreTheGuides102(t *testing.T) {
	got := handshake.SignedBytes("bm9uY2UtdGVzdC12ZWN0b3I=", "dev_01J8ZQ4T9X0000000000000000", "01J8ZQ4T9X7M3K5N6P8R0S2V4W", 1)
	if len(got) != 102 || hex.EncodeToString(got) != guide {
		t.Fatalf("%d bytes\n%x, want\n%s", len(got), got, guide)
	}
}

func TestSignedBytesMatchTheVectors(t *testing.T) {
	for _, v := range loadHellos(t) {
		t.Run(v.Name, func(t *testing.T) {
			epoch, err := handshake.ParseEpoch(v.Input.Epoch)
			if err != nil {
				t.Fatal(err)
			}
			got := handshake.SignedBytes(v.Input.Nonce, v.Input.DeviceID, epoch, v.Input.ProtocolVersion)
			if hex.EncodeToString(got) != v.Expect.PayloadHex {
				t.Errorf("%s\ngot  %x\nwant %s", v.Proves, got, v.Expect.PayloadHex)
			}
		})
	}
}

func TestHelloCarriesTheVectorsSignature(t *testing.T) {
	signed := 0
	for _, v := range loadHellos(t) {
		key, err := handshake.KeyFromSeed(unhex(t, v.Input.SeedHex))
		if err != nil {
			t.Fatal(err)
		}
		if got := key.Public().String(); got != v.Expect.PublicKeyB64 {
			t.Errorf("%s: public key %s, want %s", v.Name, got, v.Expect.PublicKeyB64)
		}
		if v.Input.ProtocolVersion != wire.ProtocolVersion {
			continue // a hello of another version is never signed
		}
		h, err := handshake.Hello(v.Input.Nonce, handshake.Identity{
			DeviceID: v.Input.DeviceID, Key: key, Epoch: handshake.Epoch(v.Input.Epoch), WorkspaceRoot: "/w",
		}, 0)
		if err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		if h.SignatureB64 != v.Expect.SignatureB64 {
			t.Errorf("%s (%s): signature %s, want %s", v.Name, v.Proves, h.SignatureB64, v.Expect.SignatureB64)
		}
		signed++
	}
	if signed < 20 {
		t.Errorf("only %d vectors were signed", signed)
	}
}

func TestEveryByteOfThePayloadIsUnderTheSignature(t *testing.T) {
	for _, v := range loadHellos(t) {
		if len(v.Expect.PayloadHex) != 204 {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			key, err := base64.StdEncoding.DecodeString(v.Expect.PublicKeyB64)
			if err != nil {
				t.Fatal(err)
			}
			signature, err := base64.StdEncoding.DecodeString(v.Expect.SignatureB64)
			if err != nil {
				t.Fatal(err)
			}
			epoch, err := handshake.ParseEpoch(v.Input.Epoch)
			if err != nil {
				t.Fatal(err)
			}
			payload := handshake.SignedBytes(v.Input.Nonce, v.Input.DeviceID, epoch, v.Input.ProtocolVersion)
			if !ed25519.Verify(key, payload, signature) {
				t.Fatal("the untouched payload is refused")
			}
			for i := range payload {
				payload[i] ^= 1
				if ed25519.Verify(key, payload, signature) {
					t.Errorf("byte %d is not under the signature", i)
				}
				payload[i] ^= 1
			}
		})
	}
}
