package executor

import "github.com/sema-agent/device-executor/link"

// remedy says what a person can do about a cause; "" where the executor helps
// itself by trying again.
func remedy(c link.Cause) string {
	switch c {
	case link.CauseLaneOff:
		return "Ask whoever runs the server to switch its device lane on."
	case link.CauseDialFailed, link.CauseUpgradeRefused, link.CauseUpgradeMissing, link.CauseNoChallenge, link.CauseNoAnswer:
		return "If this lasts, run: sema device doctor"
	case link.CauseEnrollmentGone:
		return "The enrollment is probably gone. Enroll again: sema device enroll"
	case link.CauseServerTooOld:
		return "The server has to be upgraded."
	case link.CauseRevoked:
		return "This device was revoked. Enroll again: sema device enroll"
	case link.CauseSuperseded:
		return "Another executor runs with this device's identity. Stop it, or enroll this machine as a device of its own."
	case link.CauseTooOld:
		return "Upgrade this executor."
	}
	return ""
}
