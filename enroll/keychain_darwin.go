package enroll

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
)

// Exit codes of security(1): the low byte of the OSStatus.
const (
	exitInteractionNotAllowed = 36  // errSecInteractionNotAllowed: no desktop to ask on
	exitNoDefaultKeychain     = 37  // errSecNoDefaultKeychain
	exitNoSuchKeychain        = 50  // errSecNoSuchKeychain
	exitAuthFailed            = 51  // errSecAuthFailed
	exitUserCanceled          = 128 // errSecUserCanceled
)

// keychainReady asks the default keychain for its settings: that needs it
// unlocked, and reads no secret.
func keychainReady(ctx context.Context, _ func(string) string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "/usr/bin/security", "show-keychain-info")
	cmd.Stderr = &said
	err := cmd.Run()
	if err == nil {
		return nil
	}
	kind := keychainTrouble(err)
	if ctx.Err() != nil { // it was asking for the password
		kind = KeychainLocked
	}
	return &KeyError{Store: StoreKeychain, Trouble: kind, Err: errors.New(printable(said.String()))}
}

// keychainTrouble names an error of security(1).
func keychainTrouble(err error) KeyTrouble {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		switch exit.ExitCode() {
		case exitInteractionNotAllowed:
			return KeychainHeadless
		case exitNoDefaultKeychain, exitNoSuchKeychain:
			return KeychainAbsent
		case exitAuthFailed, exitUserCanceled:
			return KeychainLocked
		}
	}
	return KeychainRefused
}
