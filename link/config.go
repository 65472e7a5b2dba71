package link

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/wire"
)

// Config is what a Link is made of. All members but LastPath, OnState, OnBeat and
// OnPath are needed.
type Config struct {
	Network  Network
	Identity handshake.Identity // the same on every connection of the process
	Outbox   Outbox
	Work     Work
	Now      func() time.Time // wall clock, compared with the monotonic one to notice sleep
	Random   io.Reader        // for the jitter
	Log      *slog.Logger

	// LastPath is the path an earlier run found, used while discovery is down. ""
	// means that there is none, and the protocol's default stands in.
	LastPath string
	// Drain is how long work may take to finish after Leave; 0 ends it at once.
	Drain time.Duration

	// OnState is told of every change of state, OnBeat of every heartbeat, OnPath
	// of every path discovery found. They are called on the link's own goroutine
	// and must return at once.
	OnState func(State)
	OnBeat  func()
	OnPath  func(path string)
}

// Outbox is what was said and not yet acknowledged; see the package of that
// name. No method blocks.
type Outbox interface {
	Resume(gen wire.Gen, pending []string, watermarks map[string]int64)
	Suspend()
	Next(dst []byte) (frame []byte, ok bool)
	Ready() <-chan struct{}
	AckChunk(id string, upTo int64)
	AckResult(id string)
	Tick(now time.Time)
	Drop(id string)
	Holding() []string
	Unacked() int
}

// Work is who does what the server asks for. Instruct, Payload and Cancel are
// called by the reader and may not keep it for longer than a few seconds.
type Work interface {
	Instruct(*wire.Instruction)
	Payload(*wire.Payload)
	Cancel(id string)
	Disconnected()
	SetMaxInflight(n int)
	Inflight() []string
	Seen(id string) bool
	Answer(id string, o wire.Outcome)
	End(ctx context.Context, ids []string) (stuck []string)
	Leave()
	Abort(ctx context.Context) error
	Wait(ctx context.Context) error
}
