package executor

import (
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/link"
)

// mend says what a person can do about a cause, and with which command, if there
// is one; "" where the executor helps itself by trying again.
func (c *Config) mend(cause link.Cause) (words, run string) {
	switch cause {
	case link.CauseLaneOff:
		return "Ask whoever runs the server to switch its device lane on.", ""
	case link.CauseDialFailed, link.CauseUpgradeRefused, link.CauseUpgradeMissing, link.CauseNoChallenge, link.CauseNoAnswer:
		return "If this lasts, look for what is wrong", remedy.For(c.DeviceID, "doctor")
	case link.CauseEnrollmentGone:
		return "The enrollment is probably gone. Enroll again", c.enrollAgain()
	case link.CauseServerTooOld:
		return "The server has to be upgraded.", ""
	case link.CauseRevoked:
		return "This device was revoked. Enroll again", c.enrollAgain()
	case link.CauseSuperseded:
		return "Another executor runs with this device's identity. Stop it, or enroll this machine as a device of its own.", ""
	case link.CauseTooOld:
		return "Upgrade this executor.", ""
	}
	return "", ""
}

func (c *Config) enrollAgain() string {
	if c.Server.IsZero() {
		return ""
	}
	return c.Server.EnrollCommand(c.WorkspaceRoot)
}
