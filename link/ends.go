package link

import (
	"errors"
	"fmt"

	"github.com/sema-agent/device-executor/wire"
)

// The final ends of [Link.Run], besides *TooOldError. None of them may be
// answered by starting over with the same identity.
var (
	// ErrRevoked: the device is revoked (§1.4, R13). The key is to be deleted and
	// the device enrolled anew.
	ErrRevoked = errors.New("this device has been revoked: enroll it again")
	// ErrSuperseded: another connection took this device's lease (R13), so another
	// executor runs with the same identity.
	ErrSuperseded = errors.New("another executor took over this device: stop that one, or enroll this machine as a device of its own")
)

// TooOldError is a server's refusal of our protocol version (§1.4).
type TooOldError struct {
	Min *int64 // lowest version the server accepts; nil if it did not say
}

// Error implements error.
func (e *TooOldError) Error() string {
	if e.Min == nil {
		return fmt.Sprintf("the server does not accept protocol version %d: upgrade this executor", wire.ProtocolVersion)
	}
	return fmt.Sprintf("the server accepts protocol version %d and above, this executor speaks %d: upgrade it", *e.Min, wire.ProtocolVersion)
}

// Ways in which a connection ends without the socket's own error.
var (
	errPeerSilent   = errors.New("nothing was received for two heartbeat intervals, pings included")
	errProbeFailed  = errors.New("no sign of life after the clock jumped or the process was frozen")
	errWriteStalled = fmt.Errorf("a frame could not be written within %s", writeLimit)
)
