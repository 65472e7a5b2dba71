package service

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime"
	"time"
)

// restartPause is how long a manager waits before it starts an executor that
// ended unexpectedly. There is no limit on how often: a keychain that is locked
// now is unlocked some time.
const restartPause = 10 * time.Second

// openFiles is the limit that commands start with. The usual 1,024 is too few
// for what builds and file watchers do today.
const openFiles = 65536

// Spec is one device's service.
type Spec struct {
	DeviceID string
	Binary   string   // the program, absolute; must stay there over upgrades, see StableBinary
	Home     string   // SEMA_HOME, absolute
	Options  []string // further arguments of `serve`
	// Environment holds NAME=value pairs beside SEMA_HOME, see CarriedEnvironment.
	Environment []string
	// DrainTimeout is what `serve` gives running commands when it is stopped. The
	// manager waits longer than that before it kills.
	DrainTimeout time.Duration
}

// endMargin is how much longer than the drain a stop may take: the grace that
// ended commands get, the goodbye, and the last words on their way out.
const endMargin = 30 * time.Second

func (s Spec) stopTimeout() time.Duration { return s.DrainTimeout + endMargin }

// arguments is the command line of the service after the program's name.
func (s Spec) arguments() []string {
	return append([]string{"device", "serve", "--device", s.DeviceID}, s.Options...)
}

func (s Spec) environment() []string {
	return append([]string{"SEMA_HOME=" + s.Home}, s.Environment...)
}

// Change says what Install did to the service's file.
type Change string

// The changes.
const (
	Created   Change = "created"
	Replaced  Change = "replaced"
	Unchanged Change = "unchanged"
)

// Installed is what Install did.
type Installed struct {
	File      string
	Change    Change
	Started   bool     // it was not running, and is now
	Restarted bool     // it was running with the old file
	Notes     []string // what the owner of the machine should know or do
}

// Removed is what Uninstall did.
type Removed struct {
	File  string
	Notes []string
}

// State is what is known of a device's service.
type State struct {
	Manager   string `json:"manager"` // systemd or launchd
	Service   string `json:"service"` // its name there
	File      string `json:"file"`
	Installed bool   `json:"installed"`
	// Orphaned: its file is gone, and the manager has the service all the same, or
	// a link to the file is left that has the manager look for it. Stop and
	// Uninstall work, and Install puts the file back.
	Orphaned bool `json:"orphaned,omitempty"`
	Edited   bool `json:"edited,omitempty"` // the file is not as Install wrote it
	Enabled  bool `json:"enabled"`          // starts by itself
	// Masked: its owner has forbidden the manager to start it.
	Masked bool `json:"masked,omitempty"`
	// Lingering is whether the service outlives the user's last session and
	// starts with the machine; nil where there is no such thing.
	Lingering *bool `json:"lingering,omitempty"`
	Running   bool  `json:"running"`
	// Restarting: it ended, and the manager starts it again by itself in a moment.
	Restarting bool `json:"restarting,omitempty"`
	// Phase is the manager's own word for what the service does.
	Phase    string `json:"phase,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	LastExit *Exit  `json:"lastExit,omitempty"`
	Text     string `json:"text,omitempty"` // the executor's own word

	outdated bool // the manager has not read the file as it is now
	active   bool // the manager has a service of ours that runs, or failed
}

// Exit is how an executor ended: by itself with a code, or by a signal.
type Exit struct {
	Code   int    `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"`
}

// String says it in words.
func (e Exit) String() string {
	if e.Signal != "" {
		return "ended by a signal: " + e.Signal
	}
	return Meaning(e.Code)
}

// LogQuery says which lines of the log are wanted.
type LogQuery struct {
	Lines  int // the last so many
	Follow bool
}

// Manager is a service manager of this machine. Errors: *NoManagerError where
// it cannot be had, *NotInstalledError, *ForeignFileError, *ValueError,
// *StartError, *CommandError.
type Manager interface {
	// Install writes the service's file, has it start by itself from now on, and
	// starts it; a running one whose file changed is stopped (it drains) and
	// started. With force it replaces a file that somebody edited.
	Install(ctx context.Context, s Spec, force bool) (*Installed, error)
	// Uninstall stops the service (it drains) and removes its file, or what is left
	// of a service whose file is gone.
	Uninstall(ctx context.Context, deviceID string, force bool) (*Removed, error)
	// Start starts it and comes back when the executor says that it is up.
	Start(ctx context.Context, deviceID string) error
	// Stop stops it and comes back when it has ended. It starts by itself again
	// with the next session or the next start of the machine.
	Stop(ctx context.Context, deviceID string) error
	// State looks. Beside a *NoManagerError there is what the file alone tells;
	// of a device without a service, the error means that it cannot have one.
	State(ctx context.Context, deviceID string) (State, error)
	// Logs copies the log to out.
	Logs(ctx context.Context, deviceID string, q LogQuery, out io.Writer) error
}

// Config is what a manager needs to know of the world.
type Config struct {
	Runner  Runner
	Getenv  func(string) string
	UID     int
	User    string // login name
	HomeDir string // the user's home folder
	// Root stands before the fixed places in the file system that are looked at;
	// "" but for tests.
	Root string
}

// Here returns the manager of this machine for the user of this process.
func Here(getenv func(string) string) (Manager, error) {
	u, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("find out which user this is: %w", err)
	}
	home := getenv("HOME")
	if home == "" {
		home = u.HomeDir
	}
	c := Config{Runner: Programs{}, Getenv: getenv, UID: os.Getuid(), User: u.Username, HomeDir: home}
	if runtime.GOOS == "darwin" {
		return NewLaunchd(c), nil
	}
	return NewSystemd(c), nil
}
