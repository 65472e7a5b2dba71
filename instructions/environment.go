package instructions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// WithoutSecrets returns env (NAME=value each) without the SEMA_* variables that
// carry secrets: SEMA_CREDENTIAL, SEMA_ENROLL_TOKEN and whatever else is named
// like one. It guards what a child is given; a process of the same user may also
// look into this one (/proc/PID/environ shows what a process was started with,
// whatever it unset since), so a long-lived executor should start without them.
func WithoutSecrets(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !secret(name) {
			kept = append(kept, v)
		}
	}
	return kept
}

func secret(name string) bool {
	rest, ok := strings.CutPrefix(name, "SEMA_")
	if !ok {
		return false
	}
	for word := range strings.SplitSeq(rest, "_") {
		switch word {
		case "CREDENTIAL", "CREDENTIALS", "TOKEN", "SECRET", "PASSWORD", "KEY":
			return true
		}
	}
	return false
}

// merge lays an instruction's shellEnv over base (§6.8). The error names the
// variable that no process could be given, never its value.
func merge(base []string, shellEnv map[string]string) ([]string, error) {
	for name, value := range shellEnv {
		switch {
		case name == "":
			return nil, fmt.Errorf("shellEnv: a variable has no name")
		case strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("shellEnv: %q cannot be the name of a variable", name)
		case strings.Contains(value, "\x00"):
			return nil, fmt.Errorf("shellEnv: the value of %s contains a NUL byte", name)
		}
	}
	env := make([]string, 0, len(base)+len(shellEnv))
	for _, v := range base {
		name, _, _ := strings.Cut(v, "=")
		if _, replaced := shellEnv[name]; !replaced {
			env = append(env, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shellEnv)) {
		env = append(env, name+"="+shellEnv[name])
	}
	return env, nil
}

// largest names the variable that takes the most room.
func largest(shellEnv map[string]string) string {
	var most string
	for _, name := range slices.Sorted(maps.Keys(shellEnv)) {
		if len(name)+len(shellEnv[name]) > len(most)+len(shellEnv[most]) {
			most = name
		}
	}
	return most
}
