package handshake

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// SignedBytes lays out what a hello's signature covers (§1.3): the domain tag,
// nonce and device id each behind a four-byte big-endian length in bytes, the
// epoch's 16 bytes, and the version as four big-endian bytes.
func SignedBytes(nonce, deviceID string, epoch Epoch, version uint32) []byte {
	id := epoch.Bytes()
	b := make([]byte, 0, len(wire.HelloDomainTag)+4+len(nonce)+4+len(deviceID)+len(id)+4)
	b = append(b, wire.HelloDomainTag...)
	if !fault.On("handshake: the nonce's length is not signed") {
		b = binary.BigEndian.AppendUint32(b, uint32(len(nonce)))
	}
	b = append(b, nonce...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(deviceID)))
	b = append(b, deviceID...)
	b = append(b, id[:]...)
	return binary.BigEndian.AppendUint32(b, version)
}

// Identity is what a device says of itself in every hello of one process.
type Identity struct {
	DeviceID      string
	Key           PrivateKey
	Epoch         Epoch
	WorkspaceRoot string // the value given at enrollment
	Platform      wire.Platform
	Supports      []wire.Kind // must not vary between connections (§3.2)
}

// Hello answers a challenge: it signs the nonce and states the identity.
// unacked is the number of results still held, left out when zero. Call it at
// most once per socket and only with that socket's nonce.
//
// The error is of the identity, not of the connection, and will not pass by
// itself: no key, a malformed epoch, text that is not UTF-8, or a hello above
// wire.MaxPreAuthFrameBytes.
func Hello(nonce string, id Identity, unacked int) (*wire.Hello, error) {
	if id.Key.IsZero() {
		return nil, errors.New("make a hello: no private key")
	}
	if _, err := ParseEpoch(string(id.Epoch)); err != nil {
		return nil, fmt.Errorf("make a hello: %w", err)
	}
	h, err := id.hello(unacked)
	if err != nil {
		return nil, err
	}
	signature := id.Key.sign(SignedBytes(nonce, id.DeviceID, id.Epoch, wire.ProtocolVersion))
	h.SignatureB64 = base64.StdEncoding.EncodeToString(signature)
	if _, err := wire.AppendDevice(nil, h); err != nil {
		return nil, fmt.Errorf("make a hello: %w", err)
	}
	return h, nil
}

// hello is the frame without its signature.
func (id Identity) hello(unacked int) (*wire.Hello, error) {
	// JSON would replace such bytes, and the server would then verify other
	// bytes than were signed, or resolve paths against another folder.
	for what, s := range map[string]string{"device id": id.DeviceID, "workspace root": id.WorkspaceRoot} {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("make a hello: the %s %q is not valid UTF-8", what, s)
		}
	}
	h := &wire.Hello{
		ProtocolVersion: wire.ProtocolVersion,
		DeviceID:        id.DeviceID,
		Epoch:           string(id.Epoch),
		Platform:        id.Platform,
		WorkspaceRoot:   id.WorkspaceRoot,
		PathFlavor:      "posix",
		Supports:        make([]string, 0, len(id.Supports)),
	}
	for _, kind := range id.Supports {
		h.Supports = append(h.Supports, string(kind))
	}
	if unacked > 0 {
		h.Resuming = &wire.Resuming{UnackedResults: int64(unacked)}
	}
	return h, nil
}

// Lengths CheckFits assumes for what is not known at enrollment.
const (
	mintedIDLen    = len("dev_") + 26
	signatureLen   = 88 // base64 of 64 bytes
	roomForVersion = 64 // bytes for the version string of a later executor
)

// CheckFits reports whether every hello of this identity will fit the limit
// for frames before the handshake, whatever the executor later holds. It needs
// no key; a DeviceID or Epoch not known yet is taken at its full length, and
// no Supports stands for all kinds.
func CheckFits(id Identity) error {
	if id.DeviceID == "" {
		id.DeviceID = strings.Repeat("0", mintedIDLen)
	}
	if id.Epoch == "" {
		id.Epoch = Epoch(strings.Repeat("0", epochLen))
	}
	if len(id.Supports) == 0 {
		id.Supports = wire.Kinds()
	}
	if pad := roomForVersion - len(id.Platform.ExecutorVersion); pad > 0 {
		id.Platform.ExecutorVersion += strings.Repeat("0", pad)
	}
	h, err := id.hello(0)
	if err != nil {
		return err
	}
	h.Resuming = &wire.Resuming{UnackedResults: wire.MaxSafeInteger}
	h.SignatureB64 = strings.Repeat("A", signatureLen)
	if _, err := wire.AppendDevice(nil, h); err != nil {
		return fmt.Errorf("workspace root %q makes the hello too long: %w", id.WorkspaceRoot, err)
	}
	return nil
}
