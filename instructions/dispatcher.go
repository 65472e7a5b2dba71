package instructions

import (
	"context"
	"log/slog"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Config is what a Dispatcher is made of.
type Config struct {
	Handlers map[wire.Kind]Handler // what can be done
	Excluded []wire.Kind           // faces of Handlers that are not declared
	Observe  Observer              // nil: nobody watches
	Log      *slog.Logger
	Now      func() time.Time
}

// Dispatcher owns instructions.
type Dispatcher struct{}

// New makes a Dispatcher.
func New(Config) *Dispatcher { return &Dispatcher{} }

// Supports lists the declared kinds in the protocol's order.
func (d *Dispatcher) Supports() []wire.Kind { return nil }

// Instruct takes an instruction over.
func (d *Dispatcher) Instruct(*wire.Instruction) {}

// Payload takes a payload frame over; it may block for a moment.
func (d *Dispatcher) Payload(*wire.Payload) {}

// Cancel ends an instruction at the server's wish.
func (d *Dispatcher) Cancel(id string) {}

// Disconnected says that the connection is gone and with it the rest of every
// payload under way.
func (d *Dispatcher) Disconnected() {}

// SetMaxInflight says how many instructions may be worked on at once.
func (d *Dispatcher) SetMaxInflight(n int) {}

// Inflight lists what runs or waits, in the order of arrival.
func (d *Dispatcher) Inflight() []string { return nil }

// Seen reports whether an id was ever taken over or answered.
func (d *Dispatcher) Seen(id string) bool { return false }

// Answer gives an outcome for an id on which no work is done here.
func (d *Dispatcher) Answer(id string, o wire.Outcome) {}

// End ends the listed work silently and returns what is not dead when ctx ends.
func (d *Dispatcher) End(ctx context.Context, ids []string) (stuck []string) { return nil }

// Leave refuses what is new or waits.
func (d *Dispatcher) Leave() {}

// Abort leaves, ends what runs, and waits for it or for ctx.
func (d *Dispatcher) Abort(ctx context.Context) error { return nil }

// Wait waits until nothing runs or waits, or for ctx.
func (d *Dispatcher) Wait(ctx context.Context) error { return nil }

// Close ends everything.
func (d *Dispatcher) Close() error { return nil }
