package link

import (
	"context"
	"errors"
	"time"
)

// Network is how a link reaches its server. All of its errors but ErrLaneOff and
// *UpgradeError count as a failure to connect.
type Network interface {
	// Discover asks the server for the path of its device lane.
	Discover(ctx context.Context) (path string, err error)
	// Dial opens a socket on that path.
	Dial(ctx context.Context, path string) (Socket, error)
}

// ErrLaneOff is Discover's word for a server that answered and runs no device
// lane (`deviceExecutor: false`).
var ErrLaneOff = errors.New("this server runs no device lane")

// Socket is one open WebSocket, frame by frame. One goroutine reads, one writes;
// Ping and the two closes may be called beside them.
type Socket interface {
	// Read returns the next text frame. It is valid until the next Read.
	Read(ctx context.Context) ([]byte, error)
	// Write returns when the frame has been handed to the operating system.
	Write(ctx context.Context, frame []byte) error
	// Ping sends a ping and waits for its pong. It closes the socket only if ctx
	// ends in the middle of the ping's own write.
	Ping(ctx context.Context) error
	// Silence is how long ago the last byte arrived, of whatever kind.
	Silence() time.Duration
	// Close says a polite end and waits for the peer's, for at most a moment.
	Close() error
	// CloseNow drops the connection.
	CloseNow() error
}
