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

// FindShell returns the absolute path of the shell that runs commands: chosen if
// it is not empty (a bare name is looked for on the PATH of env), else /bin/bash,
// else the bash on that PATH, else /bin/sh.
func FindShell(chosen string, env []string) (string, error) {
	switch {
	case chosen == "":
		candidates := append([]string{"/bin/bash"}, onPath(env, "bash")...)
		for _, path := range append(candidates, "/bin/sh") {
			if executable(path) == nil {
				return path, nil
			}
		}
		return "", errNoShell
	case !strings.Contains(chosen, "/"):
		for _, path := range onPath(env, chosen) {
			if executable(path) == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("the shell given with --shell, %s, is not on PATH", chosen)
	}
	path, err := filepath.Abs(chosen)
	if err == nil {
		err = executable(path)
	}
	if err != nil {
		return "", fmt.Errorf("the shell given with --shell cannot be run: %w", err)
	}
	return path, nil
}

// onPath lists where name may be, by the PATH of env. Relative folders are left
// out: a command's working folder must not choose its shell.
func onPath(env []string, name string) []string {
	var paths []string
	for _, v := range env {
		if list, ok := strings.CutPrefix(v, "PATH="); ok {
			for _, dir := range filepath.SplitList(list) {
				if filepath.IsAbs(dir) {
					paths = append(paths, filepath.Join(dir, name))
				}
			}
		}
	}
	return paths
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
