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
	Record  *Record
	KeyLeft error // why its key is still there; nil: it has been deleted
}

// Error implements error.
func (e *RevokedError) Error() string {
	of := "its key has been deleted"
	if e.KeyLeft != nil {
		of = fmt.Sprintf("its key is still there: %v", e.KeyLeft)
	}
	return fmt.Sprintf("device %s was revoked on %s; %s", e.Record.DeviceID, e.Record.RevokedAt.Local().Format("2006-01-02 15:04"), of)
}

// Advice says what a person can do.
func (e *RevokedError) Advice() string {
	return remedy.Step("Enroll again for a new device id", e.Record.Server.EnrollCommand(e.Record.WorkspaceRoot))
}

// ExitCode implements the interface that ExitCode asks for.
func (*RevokedError) ExitCode() int { return exitRevoked }
