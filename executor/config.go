package executor

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/logind"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// Config is what an Executor is made of.
type Config struct {
	// The device.
	DeviceID      string
	Key           handshake.PrivateKey
	WorkspaceRoot string
	Platform      wire.Platform
	Excluded      []wire.Kind // kinds that this device never declares

	// The server.
	Network  link.Network
	Server   enroll.Server     // for status alone; may be zero
	LastPath string            // the path an earlier run found; "": none
	OnPath   func(path string) // told of every path that discovery finds; may be nil

	// Dir is the device's folder, with the lock, the ledger and the status file.
	// "" is an executor that keeps nothing on disk.
	Dir string

	// Commands.
	Shell   string   // "": found, see instructions.FindShell
	Env     []string // what commands start from, NAME=value each
	Control Control  // nil: this machine's

	// Files is how files are served; nil serves none. The journal is set here.
	Files *files.Config
	// Handlers come on top of those for commands and files, and in their place
	// where both do the same kind.
	Handlers map[wire.Kind]instructions.Handler

	Outbox  outbox.Config         // bounds; clock and log are set here
	Drain   time.Duration         // how long work may take to finish after Stop
	Observe instructions.Observer // may be nil
	OnState func(link.State)      // told of every change of state; may be nil

	// Suspend reaches whoever announces the machine's sleep, as logind.Connect
	// does; nil: sleep is noticed by the clock alone.
	Suspend func(context.Context) (logind.Manager, error)

	Now    func() time.Time // nil: time.Now
	Random io.Reader        // nil: crypto/rand
	Log    *slog.Logger     // nil: no log. Gets ids, kinds, sizes and durations
}

// Control makes the process control, given what to tell of each command.
type Control func(process.Config) (process.Control, error)
