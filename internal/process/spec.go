package process

import (
	"strings"
)

// Marker is the environment variable that carries the instruction's id in
// every process of a command that did not clean its environment.
const Marker = "SEMA_INSTRUCTION_ID"

// environ is the environment the command gets.
func (s *Spec) environ() []string {
	env := make([]string, 0, len(s.Env)+2)
	for _, v := range s.Env {
		name, _, _ := strings.Cut(v, "=")
		if name != Marker && name != "PWD" {
			env = append(env, v)
		}
	}
	// With PWD a shell shows the folder as it was asked for, links included.
	return append(env, "PWD="+s.Dir, Marker+"="+s.InstructionID)
}

// largestVariable names the largest variable and its size with the final NUL.
func largestVariable(env []string) (name string, size int) {
	for _, v := range env {
		if len(v) >= size {
			name, _, _ = strings.Cut(v, "=")
			size = len(v) + 1
		}
	}
	return name, size
}
