package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/sema-agent/device-executor/instructions"
)

// withoutSecretsInEnvironment starts this very command anew where its environment
// carries secrets of ours. Commands never inherit them, but the environment a
// process was started with stays readable for all its processes in /proc, and a
// serving executor has no use for them.
func withoutSecretsInEnvironment() error {
	clean := instructions.WithoutSecrets(os.Environ())
	if len(clean) == len(os.Environ()) {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start anew without secrets in the environment: %w.\nUnset SEMA_CREDENTIAL and SEMA_ENROLL_TOKEN: serve does not need them", err)
	}
	err = syscall.Exec(self, os.Args, clean)
	return fmt.Errorf("start anew without secrets in the environment: %w.\nUnset SEMA_CREDENTIAL and SEMA_ENROLL_TOKEN: serve does not need them", err)
}
