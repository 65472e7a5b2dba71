package instructions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errNoShell: there is nothing to run a command with.
var errNoShell = errors.New("no shell found: neither /bin/bash, nor bash on PATH, nor /bin/sh can be run; name one with --shell")

// FindShell returns the path of the shell that runs commands: chosen if it is
// not empty, else /bin/bash, else the bash on the PATH of env, else /bin/sh.
func FindShell(chosen string, env []string) (string, error) {
	if chosen != "" {
		if err := executable(chosen); err != nil {
			return "", fmt.Errorf("the shell given with --shell cannot be run: %w", err)
		}
		return chosen, nil
	}
	candidates := []string{"/bin/bash"}
	for _, v := range env {
		if list, ok := strings.CutPrefix(v, "PATH="); ok {
			for _, dir := range filepath.SplitList(list) {
				if filepath.IsAbs(dir) {
					candidates = append(candidates, filepath.Join(dir, "bash"))
				}
			}
		}
	}
	for _, path := range append(candidates, "/bin/sh") {
		if executable(path) == nil {
			return path, nil
		}
	}
	return "", errNoShell
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return &fs.PathError{Op: "run", Path: path, Err: fs.ErrPermission}
	}
	return nil
}
