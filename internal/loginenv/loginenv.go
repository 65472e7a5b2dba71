// Package loginenv finds the environment that commands start from.
//
// Under a service manager a process has a bare PATH; what its user is used to is
// set by the profile of the login shell. Resolve asks that shell, once, and
// promises to come back: within a few seconds, with an environment that works,
// whatever the profile does. Noise on stdout and stderr does not matter; neither
// does a `read`, an `exec` of another shell, a background process that holds its
// descriptors, or an endless loop. What cannot be learned is a warning, and the
// inherited environment is used.
package loginenv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Mode is the value of --env.
type Mode string

// The modes.
const (
	// Inherit takes the executor's own environment.
	Inherit Mode = "inherit"
	// Login asks the user's login shell.
	Login Mode = "login"
	// Auto is Login when a service manager started the executor, else Inherit.
	Auto Mode = "auto"
)

// ParseMode reads a mode.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Inherit, Login, Auto:
		return m, nil
	}
	return "", fmt.Errorf("%q is not an environment mode: use inherit, login or auto", s)
}

// timeout is how long a login shell may take.
const timeout = 5 * time.Second

// Config says where the environment comes from.
type Config struct {
	Mode Mode
	// Inherited is the executor's own environment, NAME=value each, without what a
	// profile must not see.
	Inherited []string
	// Shell is the login shell; "" looks it up: SHELL of Inherited, else the user's
	// entry in the user database.
	Shell string
	Log   *slog.Logger
}

// Resolve returns the environment for commands, NAME=value each. It never fails:
// if the login shell does not tell, it logs a warning and returns c.Inherited.
func Resolve(ctx context.Context, c Config) []string {
	if c.Mode == Inherit || c.Mode == Auto && !underServiceManager() {
		return c.Inherited
	}
	shell := c.Shell
	if shell == "" {
		shell = loginShell(c.Inherited)
	}
	if shell == "" {
		c.Log.Warn("the user has no login shell to ask for its environment; commands start with the executor's own")
		return c.Inherited
	}
	start := time.Now()
	answer, err := ask(ctx, shell, c.Inherited)
	if err != nil {
		c.Log.Warn("the login shell did not tell its environment; commands start with the executor's own (see --env)", "shell", shell, "err", err)
		return c.Inherited
	}
	c.Log.Info("commands start with the login shell's environment", "shell", shell, "variables", len(answer), "took", time.Since(start).Round(time.Millisecond))
	return adopt(answer, c.Inherited)
}

// own are variables that a shell sets for itself. What the executor has of them
// is kept, what it has not is left out.
var own = []string{"_", "PWD", "OLDPWD", "SHLVL"}

// adopt makes an environment of a shell's answer.
func adopt(answer, inherited []string) []string {
	isOwn := func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		for _, o := range own {
			if name == o {
				return true
			}
		}
		return false
	}
	var env []string
	for _, v := range answer {
		if !isOwn(v) {
			env = append(env, v)
		}
	}
	for _, v := range inherited {
		if isOwn(v) {
			env = append(env, v)
		}
	}
	return env
}

func lookup(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

var errSilent = errors.New("it ended without an answer; a profile may have replaced or ended it")

// loginShell finds the user's login shell, "" if there is none.
func loginShell(env []string) string {
	if s := lookup(env, "SHELL"); s != "" {
		return s
	}
	return fromUserDatabase(os.Getuid())
}
