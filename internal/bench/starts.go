package main

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
)

// starts compares a command under process control, from its start to its shell's
// end, with a bare spawn of the same shell.
func starts(ctx context.Context, rounds int) error {
	control, err := process.New(process.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }() // nothing runs any more
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		if _, err := os.Stat(shell); err != nil {
			continue
		}
		spec := process.Spec{InstructionID: "ins_bench", Shell: shell, Command: "true", Env: os.Environ(), Dir: "/"}
		bare, ours, err := compare(rounds,
			timed(func() error { return exec.CommandContext(ctx, shell, "-c", "true").Run() }),
			func() (time.Duration, error) {
				began := time.Now()
				command, err := control.Start(ctx, spec)
				if err != nil {
					return 0, err
				}
				<-command.Exited()
				took := time.Since(began)
				command.Release()
				<-command.Gone()
				return took, nil
			})
		if err != nil {
			return err
		}
		showTimes("start and end of "+shell+" -c true", "bare spawn", bare, ours)
	}
	return nil
}
