package service

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// Exit codes that the command line documents.
const (
	codeUnexpected = 1
	codeUsage      = 2
)

// NoManagerError means that the user's service manager cannot be had here.
type NoManagerError struct {
	Manager string // systemd or launchd
	Why     string
	Remedy  string
	Err     error // what its program said, if it came to that
	// Never: this machine runs without it, so nothing can be running under it here.
	Never bool
}

// Error implements error.
func (e *NoManagerError) Error() string {
	return fmt.Sprintf("no %s for a background service: %s", e.Manager, e.Why)
}

// Unwrap returns the cause.
func (e *NoManagerError) Unwrap() error { return e.Err }

// Advice says what a person can do.
func (e *NoManagerError) Advice() string { return e.Remedy }

// elsewhere is what to do where no manager can be had at all.
func elsewhere(deviceID string) string {
	return remedy.Step("Run this in the foreground, or have whatever runs services here run it, and again after the exit codes 1 and 9",
		remedy.For(deviceID, "serve"))
}

// NotInstalledError means that the device has no service.
type NotInstalledError struct {
	DeviceID string
	File     string // where its file would be
	Removing bool   // it was to be removed
}

// Error implements error.
func (e *NotInstalledError) Error() string {
	return "no background service is installed for " + e.DeviceID
}

// Advice says what a person can do.
func (e *NotInstalledError) Advice() string {
	if e.Removing {
		return "There is nothing to remove."
	}
	return remedy.Step("Install it", remedy.For(e.DeviceID, "service", "install"))
}

// ForeignFileError means that a service's file is not as Install left it.
type ForeignFileError struct {
	Path  string
	Ours  bool // Install wrote it once, and somebody edited it
	Doing string
}

// Error implements error.
func (e *ForeignFileError) Error() string {
	if e.Ours {
		return fmt.Sprintf("%s: %s was edited since it was installed", e.Doing, e.Path)
	}
	return fmt.Sprintf("%s: %s was not written by this program", e.Doing, e.Path)
}

// Advice says what a person can do.
func (e *ForeignFileError) Advice() string {
	return "Look at what is in it. To lose that and go on, say --force."
}

// ValueError is a value that the manager's file cannot hold, or that would not
// last. Nothing was written.
type ValueError struct {
	What, Value string
	Why         string
	Remedy      string
}

// Error implements error.
func (e *ValueError) Error() string { return fmt.Sprintf("%s %q: %s", e.What, e.Value, e.Why) }

// Advice says what a person can do.
func (e *ValueError) Advice() string { return e.Remedy }

// ExitCode returns the exit code for it.
func (*ValueError) ExitCode() int { return codeUsage }

// StartError means that the manager started the executor and it ended before it
// was up.
type StartError struct {
	DeviceID string
	Service  string
	Exit     *Exit // nil: the manager does not say
	Err      error
}

// Error implements error.
func (e *StartError) Error() string {
	if e.Exit == nil {
		return fmt.Sprintf("start %s: %v", e.Service, e.Err)
	}
	return fmt.Sprintf("start %s: the executor did not come up: %s", e.Service, e.Exit)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Advice says what a person can do.
func (e *StartError) Advice() string {
	return remedy.Step("Its last words", remedy.For(e.DeviceID, "service", "logs")) + "\n" +
		remedy.Step("What is wrong here", remedy.For(e.DeviceID, "doctor"))
}

// ExitCode is the executor's own where it is final: the caller learns why.
func (e *StartError) ExitCode() int {
	if e.Exit != nil && e.Exit.Signal == "" && e.Exit.Code != 0 && Final(e.Exit.Code) {
		return e.Exit.Code
	}
	return codeUnexpected
}

// CommandError is a manager's program that could not be run or failed.
type CommandError struct {
	Argv      []string
	Code      int    // its exit code; -1: it has none
	Complaint string // its standard error, cut
	Err       error
}

// Error implements error.
func (e *CommandError) Error() string {
	what := strings.Join(e.Argv, " ")
	if e.Complaint != "" {
		return fmt.Sprintf("%s: %s", what, e.Complaint)
	}
	return fmt.Sprintf("%s: %v", what, e.Err)
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// missing reports whether err means that a program is not there.
func missing(err error) bool { return errors.Is(err, exec.ErrNotFound) }

// NoLogError means that there are no lines of the service that this user can
// read.
type NoLogError struct {
	Service string
	Remedy  string
	Err     error // nil: there was just nothing
}

// Error implements error.
func (e *NoLogError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("read the log of %s: %v", e.Service, e.Err)
	}
	return fmt.Sprintf("no lines of %s that you can read", e.Service)
}

// Unwrap returns the cause.
func (e *NoLogError) Unwrap() error { return e.Err }

// Advice says what a person can do.
func (e *NoLogError) Advice() string { return e.Remedy }
