package refserver

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"

	"github.com/sema-agent/device-executor/wire"
)

// signedBytes is what a hello's signature covers (§1.3), written apart from the
// executor's own code so that one misreading cannot be shared.
func signedBytes(nonce, deviceID string, epoch [16]byte, version uint32) []byte {
	b := []byte(wire.HelloDomainTag)
	for _, s := range []string{nonce, deviceID} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	b = append(b, epoch[:]...)
	return binary.BigEndian.AppendUint32(b, version)
}

// signatureHolds reports whether h was signed by pub for this socket's nonce.
func signatureHolds(h *wire.Hello, nonce string, pub ed25519.PublicKey) bool {
	epoch, ok := decodeULID(h.Epoch)
	if !ok {
		return false
	}
	sig, ok := canonicalBase64(h.SignatureB64)
	if !ok || len(sig) != ed25519.SignatureSize {
		return false
	}
	return ed25519.Verify(pub, signedBytes(nonce, h.DeviceID, epoch, uint32(h.ProtocolVersion)), sig)
}

func canonicalBase64(s string) ([]byte, bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return b, err == nil && base64.StdEncoding.EncodeToString(b) == s
}
