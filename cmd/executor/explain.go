package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// explain turns an error into what a person reads: what happened, and on the
// next line what to do about it.
func explain(err error) string {
	text := strings.TrimRight(err.Error(), "\n")
	advice := enroll.Advice(err)
	var refused *fs.PathError
	if errors.As(err, &refused) {
		// Without the call's name: "open", "mkdir", "fork/exec" are not what the
		// person did.
		text = strings.ReplaceAll(text, refused.Error(), shown(refused.Path)+": "+refused.Err.Error())
		if advice == "" && !strings.Contains(text, "\n") {
			advice = aboutPath(refused)
		}
	}
	if advice != "" {
		text += "\n" + advice
	}
	return text
}

// aboutPath says what to do where the system did not let a file be used.
func aboutPath(refused *fs.PathError) string {
	there := remedy.Quote(nearest(refused.Path))
	switch {
	case errors.Is(refused, fs.ErrPermission):
		return remedy.Step("Name another place, or give yourself the right to this one. See whose it is", "ls -ld "+there)
	case errors.Is(refused, fs.ErrNotExist):
		return "Name one that is there, or make it first."
	case errors.Is(refused, syscall.ENOSPC), errors.Is(refused, syscall.EDQUOT):
		return remedy.Step("Make room there. See what there is", "df -h "+there)
	case errors.Is(refused, syscall.EISDIR):
		return "It is a folder: name a file."
	case errors.Is(refused, syscall.ENOTDIR):
		return "A part of that path is a file: name another place."
	case errors.Is(refused, syscall.EROFS):
		return "Nothing can be written on that file system: name another place."
	}
	return remedy.Step("Mend what the system names. See what is there", "ls -ld "+there)
}

// nearest is path itself, or the nearest folder above it that is there.
func nearest(path string) string {
	for path != filepath.Dir(path) {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}
