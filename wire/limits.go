package wire

import "time"

// Transport constants (§2.1).
const (
	// WSPath is the upgrade path used when discovery named none.
	WSPath = "/v1/device/ws"
	// ProtocolVersion is the version this module speaks.
	ProtocolVersion = 1
	// MinProtocolVersion is the lowest version a server of this module accepts.
	MinProtocolVersion = 1
	// HelloDomainTag opens the signed bytes of a hello (§1.3).
	HelloDomainTag = "sema.device.hello.v1"
)

// Limits of the transport (§2.1).
const (
	// MaxFrameBytes is the most bytes any one frame may have; above it the
	// transport drops the connection.
	MaxFrameBytes = 1048576
	// MaxPreAuthFrameBytes is the most bytes a frame may have until the
	// handshake is complete.
	MaxPreAuthFrameBytes = 4096
	// HandshakeDeadline is the time from the socket's opening to the server's
	// answer to hello.
	HandshakeDeadline = 5000 * time.Millisecond
	// DefaultPayloadPartBytes is the slice size a server uses for payload
	// chunks, in raw bytes. Receivers must not rely on it.
	DefaultPayloadPartBytes = 262144
	// MaxSafeInteger is the largest number a numeric member may hold; the
	// smallest is its negative.
	MaxSafeInteger = 1<<53 - 1
	// MaxChunkBytes is the most raw bytes this executor puts in one chunk (§4
	// advises it; the limit that a server enforces is MaxFrameBytes).
	MaxChunkBytes = 64 << 10
	// MaxMessageBytes is where this executor cuts an outcome's message, on a
	// rune boundary, so that no failure can outgrow a frame.
	MaxMessageBytes = 4096
)
