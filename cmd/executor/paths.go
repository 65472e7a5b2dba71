package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// absoluteFolder makes a folder that a person named absolute, and makes sure that
// it is one.
func absoluteFolder(name string) (string, error) {
	absolute, err := filepath.Abs(name)
	if err != nil {
		return "", errors.New("the current folder is not there any more")
	}
	info, err := os.Stat(absolute)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s is not there: name a folder that is", absolute)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%s may not be looked at by this user: name another folder", absolute)
	case err != nil:
		return "", fmt.Errorf("%s cannot be looked at: %w", absolute, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder: name one", absolute)
	}
	return absolute, nil
}
