// Package process starts the shell commands of the remote side and ends them
// whole: the shell, its children, and whatever they turned into.
//
// # Linux
//
// Below the executor is one keeper, below the keeper one supervisor for each
// running command, below the supervisor the shell. Keeper and supervisors are
// this same program under another name (RunIfSupervisor); all three are
// sub-reapers of orphans, so that whatever a command does (new sessions, double
// forks, a cleaned environment), its processes stay below its supervisor. Three
// things follow, and none of them needs privilege, a cgroup or a parent-death signal:
//
//   - Known dead is what the kernel says: a supervisor without children has no
//     tree. Until then it goes on: look through /proc, KILL what is alive, reap.
//   - A killed executor closes its sockets, and every supervisor sees that and
//     ends its tree at once.
//   - A command that kills its supervisor falls to the keeper, which has no
//     other children than supervisors and therefore knows whom to end. One that
//     kills both falls to the executor, a sub-reaper as well, which knows its own
//     children. Only as PID 1, to which all orphans of the machine fall, it goes
//     by the marker alone, and End does not say that all is dead. A command that
//     stops its helpers gains nothing: the keeper continues its supervisors, and
//     the executor the keeper.
//
// A signal goes to a process that was seen to descend from the supervisor,
// through a descriptor that names the process and not its number, after the
// lineage was read again with that descriptor open; or to a child of the
// signaller's own, whose number is nobody else's until it is reaped.
//
// A supervisor whose command is gone takes the next one. Starting one for each
// command was tried and cost 5 ms of processor time, of which 2 to 3 ms showed
// in the latency of short commands. As it is, `sh -c true` takes 0.3 to 0.6 ms
// more at p50 than a bare spawn of it (1.2 ms), on two busy cores (BenchmarkStart); a
// command that finds no supervisor waiting pays about 4 ms once. A helper has
// 0.7 MiB of its own and 1.7 MiB with its share of the program.
//
// A cgroup for each command was weighed: cgroup.kill is one call, but it needs
// delegation, which a user's shell, a container and a hybrid hierarchy do not
// give, and the supervisor is needed for the executor's own death all the same.
//
// # macOS
//
// There is no sub-reaper. A command's processes are those of its shell's session,
// those seen to descend from them, and those whose environment shows the marker
// (the kernel hides the environment of Apple's own programs). What leaves the
// session and loses its parent within half a second is therefore not found, unless
// it shows the marker. Package lineage has the particulars.
//
// Nobody is there to end the commands of an executor that is killed: they go on until
// Recover ends them at the next start.
package process

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// Control starts commands. It is safe for concurrent use.
type Control interface {
	// Start runs one command and returns once its shell is running. The
	// command's end is not tied to ctx: ctx bounds the start alone.
	//
	// Errors: ErrShellUnavailable, *DirError, *SpawnError and ErrClosed say that
	// nothing was started; so does the error of ctx and that of Config.Before.
	// ErrLost and *SurvivorsError, whatever comes with them, say that the command
	// may have run.
	Start(ctx context.Context, s Spec) (Command, error)

	// Level says what End can promise on this machine: LevelTree or LevelGroup.
	Level() string

	// Close ends every command that is still running, at once, and frees what
	// the Control holds. It returns a *SurvivorsError for what would not die
	// within five seconds. No Start may follow.
	Close() error
}

// What Control.Level answers.
const (
	// LevelTree: every descendant is found and ended, whatever it did to hide.
	LevelTree = "tree"
	// LevelGroup: the session, with its process groups, the lineage as far as it was
	// seen, and whatever shows the marker in its environment.
	LevelGroup = "group"
)

// Config configures a Control. The zero value is usable.
type Config struct {
	// Log receives what the owner of the machine should know: processes that
	// would not die, supervisors that were killed. Never a command's text.
	Log *slog.Logger

	// Before is called with what is about to run, before it runs. An error
	// keeps the command from starting and is returned by Start.
	Before func(Recorded) error

	// After is called once nothing of it is left alive. It is not called for
	// processes that would not die.
	After func(Recorded)
}

// Recorded is what has to be on disk before a command starts, so that Recover
// can end its leftovers after a crash.
type Recorded struct {
	InstructionID string
	// BootID names the boot of this machine: after another boot nothing is left.
	BootID string
	// PID and StartTime (in the kernel's own unit) name one process for the
	// whole boot: on Linux the command's supervisor. On macOS nothing of the
	// command exists before it starts: there it is the executor at first, and the
	// command's shell, by a second call of Before, as soon as that is there.
	PID       int
	StartTime uint64
}

// Spec is one command.
type Spec struct {
	// InstructionID becomes SEMA_INSTRUCTION_ID in the command's environment.
	InstructionID string
	// Shell is the path of a POSIX shell; it becomes $0.
	Shell string
	// Command is the text run with -c. It may be larger than what the system
	// takes as one argument.
	Command string
	// Env is the whole environment, NAME=value each. SEMA_INSTRUCTION_ID and
	// PWD are set by Start and replace what is here.
	Env []string
	// Dir is the working folder, absolute.
	Dir string
}

// Command is one started command.
type Command interface {
	// Stdout and Stderr are the read ends of the command's output.
	Stdout() Pipe
	Stderr() Pipe

	// Exited is closed when the shell itself has ended, whatever it left
	// running and whoever still holds its pipes.
	Exited() <-chan struct{}

	// ExitCode is the shell's own exit code, 128+n when signal n ended it. It
	// is -1 before Exited is closed and when Err is not nil.
	ExitCode() int

	// Err is nil, or says why the exit code could not be learned (ErrLost):
	// the command killed its own supervisor. Valid once Exited is closed.
	Err() error

	// Gone is closed when no live process of the command is left.
	Gone() <-chan struct{}

	// End ends the whole tree: TERM (and CONT, for what is stopped) to every
	// live descendant, grace, KILL until nothing is left. It returns nil when
	// all of it is known dead, and *SurvivorsError when ctx ends first or five
	// seconds of KILL were not enough; the ending goes on behind that answer.
	// End may be called more than once and by several goroutines; a shorter
	// grace shortens the one that is running.
	End(ctx context.Context, grace time.Duration) error

	// Leftovers is the number of live processes of the command now, without
	// the shell.
	Leftovers() int

	// Ended is the number of processes that outlived the shell and had to be
	// ended. Final once Gone is closed.
	Ended() int

	// Release frees everything, the pipes included, and ends at once what
	// still runs. It does not wait for that.
	Release()
}

// Pipe is the read end of a command's output. Read waits for data, for the end
// of file (when the last holder has closed it) or for the read deadline.
type Pipe interface {
	io.ReadCloser
	SetReadDeadline(t time.Time) error

	// ReadAvailable reads what is there without waiting. It returns
	// ErrWouldBlock when there is nothing and something still holds the pipe.
	ReadAvailable(p []byte) (n int, err error)
}
