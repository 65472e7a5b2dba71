package instructions

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/wire"
)

// ExecConfig is what running commands takes.
type ExecConfig struct {
	Control process.Control
	// Shell is the path of the shell, "" to find one (see FindShell).
	Shell string
	// Env is what every command's environment starts from, NAME=value each;
	// variables that carry secrets are taken out of it.
	Env []string
	// Workspace is the enrolled workspace root, the working folder of a command
	// whose instruction names none.
	Workspace string
	Log       *slog.Logger // nil: no log. Gets ids and pids, never a command's text
}

// Exec returns the handler of exec and execStream. To this executor they are the
// same: both send their output as it comes.
//
// A command ends when its shell ends. What the shell left running may finish
// within a second; then it is ended, and the outcome says how the shell ended.
func Exec(c ExecConfig) Handler {
	c.Env = WithoutSecrets(c.Env)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return func(ctx context.Context, call *Call) wire.Outcome {
		spec, refusal := c.spec(call)
		if refusal != nil {
			return refusal
		}
		if err := call.Begin(ctx); err != nil {
			return call.Stopped(ctx)
		}
		cmd, err := c.Control.Start(ctx, spec)
		if err != nil {
			return startFailed(ctx, call, err)
		}
		return run(ctx, call, cmd, c.Log)
	}
}

// spec makes a command of an instruction, or says why there can be none.
func (c *ExecConfig) spec(call *Call) (process.Spec, wire.Outcome) {
	in := call.In
	command := call.Args.(wire.ExecArgs).Command
	if strings.Contains(command, "\x00") {
		return process.Spec{}, wire.Failf(wire.CodeInvalid, "%s: the command contains a NUL byte, which no shell can be given", in.Kind)
	}
	dir := in.Cwd
	if dir == "" || fault.On("instructions: cwd is not heeded") {
		dir = c.Workspace
	}
	if !filepath.IsAbs(dir) || strings.Contains(dir, "\x00") {
		return process.Spec{}, wire.Failf(wire.CodeInvalid, "%s: cwd must be an absolute path, not %q", in.Kind, dir)
	}
	env, err := merge(c.Env, in.ShellEnv)
	if err != nil {
		return process.Spec{}, wire.Failf(wire.CodeInvalid, "%s: %v", in.Kind, err)
	}
	if fault.On("instructions: shellEnv stays for the next command") {
		c.Env = env
	}
	if fault.On("instructions: shellEnv is logged") {
		c.Log.Info("environment", "shellEnv", in.ShellEnv)
	}
	shell, err := FindShell(c.Shell, c.Env)
	if err != nil {
		return process.Spec{}, wire.Failf(wire.CodeShellUnavailable, "%s: the command never started: %v", in.Kind, err)
	}
	if strings.HasPrefix(command, "-") || strings.HasPrefix(command, "+") {
		command = " " + command // else the shell takes it for an option
	}
	return process.Spec{InstructionID: in.InstructionID, Shell: shell, Command: command, Env: env, Dir: dir}, nil
}

// startFailed turns the reason why a command did not start into its outcome.
func startFailed(ctx context.Context, call *Call, err error) wire.Outcome {
	in := call.In
	never := func(code wire.ErrorCode) wire.Outcome {
		return wire.Failf(code, "%s: the command never started: %v", in.Kind, err)
	}
	var survivors *process.SurvivorsError
	var dir *process.DirError
	var spawn *process.SpawnError
	switch {
	case errors.Is(err, process.ErrLost), errors.As(err, &survivors):
		return wire.Failf(wire.CodeOutcomeUnknown, "%s: whether the command ran is not known: %v", in.Kind, err)
	case errors.As(err, &dir):
		return never(wire.ErrorCode(dir.Reason))
	case errors.Is(err, process.ErrShellUnavailable):
		return never(wire.CodeShellUnavailable)
	case errors.As(err, &spawn):
		if name := largest(in.ShellEnv); spawn.Variable == "" && name != "" && errors.Is(err, syscall.E2BIG) {
			return wire.Failf(wire.CodeSpawnError, "%s: the command never started: its environment is larger than the system takes, most of it in the variable %s: %v", in.Kind, name, err)
		}
		return never(wire.CodeSpawnError)
	case errors.Is(err, process.ErrClosed):
		return never(wire.CodeTargetUnavailable)
	case ctx.Err() != nil:
		// Start promises that nothing ran: more than Begin could know.
		return stopped(context.Cause(ctx), false, in)
	}
	return never(wire.CodeSpawnError)
}
