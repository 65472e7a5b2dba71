package service

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// StableBinary finds the path of the running program that a service is to
// start, and warns of one that may not last.
//
// It keeps the name the program was called by (typed is os.Args[0], running is
// os.Executable's answer): package managers keep that name and change what it
// links to. What `go run` made is gone in a moment: that is a *ValueError.
func StableBinary(typed, running string) (path string, warnings []string, err error) {
	path = running
	if called, ok := calledAs(typed); ok && sameFile(called, running) {
		path = called
	}
	if goRun.MatchString(filepath.ToSlash(running)) {
		return "", nil, &ValueError{What: "the program's path", Value: running, Why: "'go run' deletes it when this command ends",
			Remedy: "Install the program first: scripts/install"}
	}
	switch checkout := checkoutOf(path); {
	case checkout != "":
		warnings = append(warnings, "The service runs "+path+", inside the source folder "+checkout+
			": a new build changes it, and cleaning up removes it. To install it properly: scripts/install")
	case within(path, os.TempDir()):
		warnings = append(warnings, "The service runs "+path+", in a folder for temporary files. To install it properly: scripts/install")
	}
	return path, warnings, nil
}

// goRun matches programs in the work folder of the Go tool.
var goRun = regexp.MustCompile(`/go-build[0-9]+/`)

// calledAs returns the absolute path that a command name stands for, links
// in it kept.
func calledAs(name string) (string, bool) {
	if !strings.ContainsRune(name, filepath.Separator) {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if path := filepath.Join(dir, name); filepath.IsAbs(path) && exists(path) {
				return path, true
			}
		}
		return "", false
	}
	path, err := filepath.Abs(name)
	return path, err == nil
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// checkoutOf returns the folder of source code that path is in, "" if it is in
// none.
func checkoutOf(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "go.mod")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
