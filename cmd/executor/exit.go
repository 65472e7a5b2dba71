package main

import (
	"errors"
	"fmt"

	"github.com/sema-agent/device-executor/enroll"
)

// Exit codes, also what the service units rely on.
const (
	exitOK          = 0
	exitUnexpected  = 1
	exitUsage       = 2
	exitNoDevice    = 3
	exitHeld        = 4
	exitRevoked     = 5
	exitSuperseded  = 6
	exitTooOld      = 7
	exitRefused     = 8
	exitKeyUnusable = 9
)

// codeError carries the exit code a failure ends the process with. Without an
// error inside, nothing is printed: the code is the whole message.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

func exitWith(code int, err error) error { return &codeError{code, err} }

func usagef(format string, args ...any) error {
	return exitWith(exitUsage, fmt.Errorf(format, args...))
}

// exitCode maps whatever a command failed with to the closed set.
func exitCode(err error) int {
	var coded *codeError
	if errors.As(err, &coded) {
		return coded.code
	}
	return enroll.ExitCode(err)
}
