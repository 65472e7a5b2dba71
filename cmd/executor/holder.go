package main

import (
	"path/filepath"

	"github.com/sema-agent/device-executor/fence"
)

// holder asks the lock of a device whether an executor serves it now. Where the
// lock cannot be asked, nobody is taken to hold it: `doctor` says why.
func holder(deviceDir string) (running bool, pid int) {
	running, pid, err := fence.Probe(filepath.Join(deviceDir, "lock"))
	return running && err == nil, pid
}
