package simulation

import (
	"bytes"
	"os"
	"path/filepath"
)

// alive lists the processes that have a setting in their environment and are no
// zombies.
func alive(setting string) (pids []string) {
	found, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range found {
		env, err := os.ReadFile(f) // empty of a zombie, and of one that has just gone
		if err == nil && bytes.Contains(env, append([]byte(setting), 0)) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}
