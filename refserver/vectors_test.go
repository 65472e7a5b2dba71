package refserver

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/sema-agent/device-executor/testvectors"
	"github.com/sema-agent/device-executor/wire"
)

// signedHello is one vector of a signed hello, of our making or foreign.
type signedHello struct {
	Nonce, DeviceID, Epoch string
	ProtocolVersion        int64
	PublicKeyB64           string
	PayloadHex             string
	SignatureB64           string
}

// judge runs one vector through the server's half: its own layout of the
// payload, the signature it must accept, and every one-byte change it must not.
func (v signedHello) judge(t *testing.T) {
	t.Helper()
	pub, err := base64.StdEncoding.DecodeString(v.PublicKeyB64)
	if err != nil {
		t.Fatal(err)
	}
	epoch, ok := decodeULID(v.Epoch)
	if !ok {
		t.Fatalf("epoch %s was refused", v.Epoch)
	}
	payload := signedBytes(v.Nonce, v.DeviceID, epoch, uint32(v.ProtocolVersion))
	if hex.EncodeToString(payload) != v.PayloadHex {
		t.Fatalf("payload %x, want %s", payload, v.PayloadHex)
	}
	h := &wire.Hello{ProtocolVersion: v.ProtocolVersion, DeviceID: v.DeviceID, Epoch: v.Epoch, SignatureB64: v.SignatureB64}
	if !signatureHolds(h, v.Nonce, pub) {
		t.Fatal("the signature was refused")
	}
	sig, _ := canonicalBase64(v.SignatureB64)
	for i := range payload {
		changed := bytes.Clone(payload)
		changed[i] ^= 0x20
		if ed25519.Verify(pub, changed, sig) {
			t.Errorf("byte %d changed: the signature still holds", i)
		}
	}
	last := "0"
	if v.Epoch[25:] == last {
		last = "1"
	}
	for _, other := range []signedHello{
		{Nonce: v.Nonce + "x", DeviceID: v.DeviceID, Epoch: v.Epoch},
		{Nonce: v.Nonce, DeviceID: v.DeviceID + "x", Epoch: v.Epoch},
		{Nonce: v.Nonce, DeviceID: v.DeviceID, Epoch: v.Epoch[:25] + last},
	} {
		h := *h
		h.DeviceID, h.Epoch = other.DeviceID, other.Epoch
		if signatureHolds(&h, other.Nonce, pub) {
			t.Errorf("the signature holds for %+v", other)
		}
	}
}

func TestEverySignedHelloOfTheVectorsIsAccepted(t *testing.T) {
	type input struct {
		SeedHex, DeviceID, Epoch, Nonce string
		ProtocolVersion                 int64
	}
	type expect struct{ PublicKeyB64, PayloadHex, SignatureB64 string }
	cases, err := testvectors.Cases[input, expect]("hello.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			signedHello{c.Input.Nonce, c.Input.DeviceID, c.Input.Epoch, c.Input.ProtocolVersion,
				c.Expect.PublicKeyB64, c.Expect.PayloadHex, c.Expect.SignatureB64}.judge(t)
		})
	}
	raw, err := testvectors.Files.ReadFile("foreign.json")
	if err != nil {
		t.Fatal(err)
	}
	var foreign struct{ Hellos []signedHello }
	if err := json.Unmarshal(raw, &foreign); err != nil || len(foreign.Hellos) == 0 {
		t.Fatalf("%d foreign hellos: %v", len(foreign.Hellos), err)
	}
	for _, v := range foreign.Hellos {
		t.Run("foreign", v.judge)
	}
}

func TestEveryEpochOfTheVectorsIsJudgedAsStated(t *testing.T) {
	type input struct{ Epoch string }
	type expect struct{ BytesHex *string }
	cases, err := testvectors.Cases[input, expect]("epochs.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		b, ok := decodeULID(c.Input.Epoch)
		if ok != (c.Expect.BytesHex != nil) || ok && hex.EncodeToString(b[:]) != *c.Expect.BytesHex {
			t.Errorf("%s: %q gives %x, %t", c.Name, c.Input.Epoch, b, ok)
		}
	}
}
