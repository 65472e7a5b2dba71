package handshake

import (
	"context"
	"errors"
	"fmt"

	"github.com/sema-agent/device-executor/wire"
)

// Conn is one open socket, message by message. A Read or Write whose context
// ends may close the socket.
type Conn interface {
	Read(ctx context.Context) ([]byte, error)
	Write(ctx context.Context, frame []byte) error
}

// The two ways a server can stay silent. Both are reasons to drop the socket
// and dial again.
var (
	ErrNoChallenge = errors.New("the server sent no challenge in time")
	ErrNoAnswer    = errors.New("the server did not answer the hello in time")
)

// RejectError is a server's refusal of a hello (§1.4). Code may lie outside the
// closed set: it is then as final as auth_failed, which is not at all.
type RejectError struct {
	Code               wire.HelloRejectCode
	MinProtocolVersion *int64 // with protocol_version_unsupported: the lowest version accepted
}

// Error implements error.
func (e *RejectError) Error() string {
	if e.MinProtocolVersion != nil {
		return fmt.Sprintf("the server refused the hello: %s (this executor speaks version %d, the server accepts %d and above)",
			e.Code, wire.ProtocolVersion, *e.MinProtocolVersion)
	}
	return fmt.Sprintf("the server refused the hello: %s", e.Code)
}

// ServerVersionError means that the challenge came from a server that speaks
// only versions older than ours, so that a hello could not be accepted and none
// was sent. A newer server is not an error: it may accept our version still,
// and says so itself when it does not.
type ServerVersionError struct {
	Server int64
}

// Error implements error.
func (e *ServerVersionError) Error() string {
	return fmt.Sprintf("the server speaks protocol version %d; this executor speaks %d", e.Server, wire.ProtocolVersion)
}

// Exchange runs the handshake on a socket that has just opened: it waits for
// the challenge, sends the hello and returns the acknowledgement, all within
// wire.HandshakeDeadline. unacked is the number of results held.
//
// Frames that have no place here, a second challenge among them, are ignored;
// a frame that cannot be read ends the exchange. Errors a caller decides on:
// *RejectError, *ServerVersionError, ErrNoChallenge, ErrNoAnswer, the parent
// context's error, and otherwise the socket's own. Whatever the error, the
// socket is of no further use.
func Exchange(ctx context.Context, conn Conn, id Identity, unacked int) (*wire.HelloAck, error) {
	deadline, cancel := context.WithTimeout(ctx, wire.HandshakeDeadline)
	defer cancel()
	x := exchange{parent: ctx, ctx: deadline, conn: conn}

	nonce, err := x.challenge()
	if err != nil {
		return nil, err
	}
	hello, err := Hello(nonce, id, unacked)
	if err != nil {
		return nil, err
	}
	frame, err := wire.AppendDevice(nil, hello)
	if err != nil {
		return nil, fmt.Errorf("encode the hello: %w", err)
	}
	if err := conn.Write(deadline, frame); err != nil {
		return nil, x.failed("send the hello", err, ErrNoAnswer)
	}
	return x.answer()
}

type exchange struct {
	parent context.Context // the caller's
	ctx    context.Context // parent with the handshake's deadline
	conn   Conn
}

// challenge returns the nonce of the first challenge.
func (x *exchange) challenge() (string, error) {
	for {
		frame, err := x.read("wait for the challenge", ErrNoChallenge)
		if err != nil {
			return "", err
		}
		switch f := frame.(type) {
		case *wire.Challenge:
			if f.ProtocolVersion < wire.ProtocolVersion {
				return "", &ServerVersionError{Server: f.ProtocolVersion}
			}
			return f.Nonce, nil
		case *wire.HelloReject: // a draining server need not challenge first
			return "", &RejectError{Code: f.Code, MinProtocolVersion: f.MinProtocolVersion}
		}
	}
}

// answer returns the acknowledgement, or the rejection as an error.
func (x *exchange) answer() (*wire.HelloAck, error) {
	for {
		frame, err := x.read("wait for the answer to the hello", ErrNoAnswer)
		if err != nil {
			return nil, err
		}
		switch f := frame.(type) {
		case *wire.HelloAck:
			return f, nil
		case *wire.HelloReject:
			return nil, &RejectError{Code: f.Code, MinProtocolVersion: f.MinProtocolVersion}
		}
	}
}

func (x *exchange) read(doing string, late error) (wire.ServerFrame, error) {
	b, err := x.conn.Read(x.ctx)
	if err != nil {
		return nil, x.failed(doing, err, late)
	}
	frame, err := wire.DecodeServer(b)
	if err != nil {
		return nil, fmt.Errorf("handshake: %s: unreadable frame: %w", doing, err)
	}
	return frame, nil
}

// failed names a socket error by its cause: the caller's context, our deadline
// (late), or the socket itself.
func (x *exchange) failed(doing string, err, late error) error {
	if cause := context.Cause(x.parent); cause != nil {
		return fmt.Errorf("handshake: %s: %w", doing, cause)
	}
	if x.ctx.Err() != nil {
		return fmt.Errorf("handshake: %w (%s)", late, wire.HandshakeDeadline)
	}
	return fmt.Errorf("handshake: %s: %w", doing, err)
}
