package enroll

import (
	"fmt"
	"strings"

	"github.com/sema-agent/device-executor/internal/remedy"
)

// NoDeviceError means that nothing is enrolled, or not the device that was
// named (DeviceID).
type NoDeviceError struct {
	Home     string
	DeviceID string
}

// Error implements error.
func (e *NoDeviceError) Error() string {
	if e.DeviceID == "" {
		return fmt.Sprintf("no device is enrolled on this machine (looked in %s)", e.Home)
	}
	return fmt.Sprintf("no device %q is enrolled on this machine (looked in %s)", e.DeviceID, e.Home)
}

// Advice says what a person can do.
func (e *NoDeviceError) Advice() string {
	if e.DeviceID == "" {
		return remedy.Step("Enroll this machine", remedy.Command("enroll", "--server", "URL"))
	}
	return remedy.Step("See what is enrolled", remedy.Command("list"))
}

// ExitCode implements the interface that ExitCode asks for.
func (*NoDeviceError) ExitCode() int { return exitNoDevice }

// SeveralDevicesError means that the command must be told which one.
type SeveralDevicesError struct {
	Records []*Record
}

// Error implements error.
func (e *SeveralDevicesError) Error() string {
	ids := make([]string, len(e.Records))
	for i, r := range e.Records {
		ids[i] = r.DeviceID
	}
	return fmt.Sprintf("%d devices are enrolled on this machine: %s", len(ids), strings.Join(ids, ", "))
}

// Advice says what a person can do.
func (*SeveralDevicesError) Advice() string {
	return "Name one with --device ID. " + remedy.Step("Which is which", remedy.Command("list"))
}

// ExitCode implements the interface that ExitCode asks for.
func (*SeveralDevicesError) ExitCode() int { return exitUsage }

// BrokenRecordError means that a device's record cannot be used. Its folder and
// its key are left as they are.
type BrokenRecordError struct {
	DeviceID string // the folder's name
	Path     string // the record
	Err      error
}

// Error implements error.
func (e *BrokenRecordError) Error() string {
	return fmt.Sprintf("the record of device %s cannot be used: %s: %v", e.DeviceID, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *BrokenRecordError) Unwrap() error { return e.Err }

// Advice says what a person can do.
func (*BrokenRecordError) Advice() string {
	return "Mend the file or restore it from a backup. If neither can be done, move its folder away and enroll again."
}

// ExitCode implements the interface that ExitCode asks for.
func (*BrokenRecordError) ExitCode() int { return exitNoDevice }

// RevokedError means that the server has revoked the device: it is gone for
// good.
type RevokedError struct {
	Record *Record
	Key    Remains // what is left of its key
}

// Error implements error.
func (e *RevokedError) Error() string {
	text := fmt.Sprintf("device %s was revoked on %s", e.Record.DeviceID, e.Record.RevokedAt.Local().Format("2006-01-02 15:04"))
	if of := e.Key.String(); of != "" {
		text += "; " + of
	}
	return text
}

// Unwrap returns why the key is still there, if it is known.
func (e *RevokedError) Unwrap() error { return e.Key.Err }

// Advice says what a person can do.
func (e *RevokedError) Advice() string {
	again := remedy.Step("Enroll again for a new device id", e.Record.Server.EnrollCommand(e.Record.WorkspaceRoot))
	if first := e.Key.Advice(e.Record.DeviceID); first != "" {
		return first + "\n" + again
	}
	return again
}

// ExitCode implements the interface that ExitCode asks for.
func (*RevokedError) ExitCode() int { return exitRevoked }
