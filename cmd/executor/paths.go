package main

import (
	"errors"
	"fmt"
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
	if err != nil {
		return "", fmt.Errorf("%s: it is not there, or cannot be looked at: %w", absolute, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s: not a folder", absolute)
	}
	return absolute, nil
}
