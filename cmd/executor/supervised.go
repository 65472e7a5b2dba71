package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"

	"github.com/sema-agent/device-executor/internal/caplog"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/service"
)

// logTo sends all that this process says from now on, its last words and the
// trace of a crash included, to a size-capped file. It stays open to the end.
func (a *app) logTo(path string) error {
	w, err := caplog.Open(path, caplog.DefaultCap, func(f *os.File) {
		_ = debug.SetCrashOutput(f, debug.CrashOptions{}) // without it a trace goes to stderr
	})
	if err != nil {
		return exitWith(exitUsage, fmt.Errorf("--%s: %w", service.LogFileFlag, err))
	}
	a.stdout, a.stderr = w, w
	return nil
}

// told is the exit code that a service manager is told in place of code. One
// that only tells success from failure passes a flag, and gets success for every
// end after which another start would be in vain.
func told(args []string, code int) int {
	if forManager(args) && service.Final(code) {
		return exitOK
	}
	return code
}

// forManager reports whether such a service manager started this.
func forManager(args []string) bool { return slices.Contains(args, "--"+service.ZeroWhenFinalFlag) }

// announce returns what tells systemd of an executor's states. The first state
// means that the device is held and the server is being looked for: it is up.
func announce(n *service.Notifier, log *slog.Logger) func(link.State) {
	up := false
	say := func(err error) {
		if err != nil {
			log.Debug("the service manager could not be told", "err", err)
		}
	}
	return func(s link.State) {
		say(n.Status(phaseLine(string(s.Phase), string(s.Cause))))
		if !up {
			up = true
			say(n.Ready())
		}
		if s.Phase == link.Leaving {
			say(n.Stopping())
		}
	}
}
