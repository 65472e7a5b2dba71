package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is one call of a manager's program.
type Command struct {
	Argv []string // the program, found on PATH, and its arguments
	Env  []string // NAME=value, added to the environment of this process
}

// Runner runs the managers' programs.
type Runner interface {
	// Run runs a program until it or ctx ends, with its standard output going to
	// stdout. A program that is missing or fails is a *CommandError.
	Run(ctx context.Context, c Command, stdout io.Writer) error
}

// Programs runs real programs.
type Programs struct{}

// maxComplaint bounds what is kept of a failing program's standard error.
const maxComplaint = 2048

// Run implements Runner.
func (Programs) Run(ctx context.Context, c Command, stdout io.Writer) error {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	var complaint beginning
	cmd.Stdout, cmd.Stderr = stdout, &complaint
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err == nil {
		return nil
	}
	failed := &CommandError{Argv: c.Argv, Code: -1, Err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		failed.Code = exit.ExitCode()
	}
	if ctx.Err() != nil {
		failed.Err = context.Cause(ctx)
	}
	failed.Complaint = strings.TrimSpace(string(complaint))
	return failed
}

// beginning keeps the first maxComplaint bytes that are written to it.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), maxComplaint-len(*b))]...)
	return len(p), nil
}

// patience bounds a call that asks a manager something or tells it what takes
// no time: a bus that does not answer is a message, not a hang.
const patience = 20 * time.Second

// output runs a program that answers soon, and returns what it printed.
func output(ctx context.Context, r Runner, c Command) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out bytes.Buffer
	err := r.Run(ctx, c, &out)
	return strings.TrimSpace(out.String()), err
}
