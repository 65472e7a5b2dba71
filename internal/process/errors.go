package process

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

var (
	// ErrShellUnavailable: the shell is not there or cannot be executed.
	ErrShellUnavailable = errors.New("shell unavailable")

	// ErrLost: the command's supervisor was killed and with it the knowledge
	// of how the shell ended, or whether it started.
	ErrLost = errors.New("the command's supervisor was killed")

	// ErrWouldBlock: nothing to read now, and the pipe is still held open.
	ErrWouldBlock = errors.New("a read would block")

	// ErrClosed: the Control was closed.
	ErrClosed = errors.New("process control is closed")
)

// DirReason tells apart why a working folder cannot be used.
type DirReason string

// The reasons, in the words of the protocol's error codes (§3.3).
const (
	DirNotFound     DirReason = "not_found"
	DirNotDirectory DirReason = "not_directory"
	DirPermission   DirReason = "permission_denied"
	DirUnusable     DirReason = "unknown"
)

// DirError says that the working folder cannot be used. Nothing was started.
type DirError struct {
	Dir    string
	Reason DirReason
	Err    error
}

func (e *DirError) Error() string {
	return fmt.Sprintf("working folder %s: %v", e.Dir, e.Err)
}

func (e *DirError) Unwrap() error { return e.Err }

// SpawnError says that the system refused to start the command. Nothing was
// started.
type SpawnError struct {
	// Variable names the environment variable that is too large, "" otherwise.
	Variable string
	Err      error
}

func (e *SpawnError) Error() string {
	if e.Variable != "" {
		return fmt.Sprintf("start command: environment variable %s: %v", e.Variable, e.Err)
	}
	if errors.Is(e.Err, syscall.EAGAIN) {
		return fmt.Sprintf("start command: %v (this user, or this container, may have no more processes: end some)", e.Err)
	}
	return fmt.Sprintf("start command: %v", e.Err)
}

func (e *SpawnError) Unwrap() error { return e.Err }

// SurvivorsError names processes that could not be ended in time.
type SurvivorsError struct {
	PIDs []int
}

func (e *SurvivorsError) Error() string {
	if len(e.PIDs) == 0 {
		return "it is not known whether every process of the command has ended"
	}
	pids := make([]string, len(e.PIDs))
	for i, pid := range e.PIDs {
		pids[i] = strconv.Itoa(pid)
	}
	return "still alive after SIGKILL: pid " + strings.Join(pids, ", ")
}
