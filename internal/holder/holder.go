// Package holder says who holds a device on this machine: which process serves it,
// as far as that can be told, and how it is ended. A holder that left no number in
// its lock, as on a full disk, is a holder all the same; no message ever names a
// process that is none.
package holder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/regular"
	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/internal/status"
)

// Holder is a process that holds the lock of a device.
type Holder struct {
	PID int // 0: not known
	// Says is what it says of itself; nil: nothing, yet or any more.
	Says *status.Snapshot
	// Trouble is why what it says cannot be read; nil: it can, or there is nothing.
	Trouble error

	lock string
}

// Of asks who holds the device with this folder, whose name is the device's id, also
// by a copy of the folder; nil: nobody. An error means that its lock cannot be asked.
func Of(deviceDir string) (*Holder, error) {
	path := filepath.Join(deviceDir, "lock")
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // it might hold us up
		return nil, &fs.PathError{Op: "open", Path: path, Err: regular.ErrOther}
	}
	held, pid, err := fence.ProbeDevice(path, filepath.Base(deviceDir))
	if !held || err != nil {
		return nil, err
	}
	h := Known(pid, path)
	snapshot, err := status.Load(filepath.Join(deviceDir, "status.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		h.Trouble = err
	case snapshot.PID == h.PID:
		h.Says = snapshot
	case h.PID == 0 && hasOpen(snapshot.PID, path):
		h.PID, h.Says = snapshot.PID, snapshot
	}
	return h, nil
}

// Known is the holder of a lock of whom no more is known than the number that it
// left there, 0 if it left none.
func Known(pid int, lock string) *Holder { return &Holder{PID: max(pid, 0), lock: lock} }

// hasOpen reports whether a process has a file open, as far as that can be seen:
// on Linux, and of one's own processes.
func hasOpen(pid int, path string) bool {
	file, err := os.Stat(path)
	if err != nil {
		return false
	}
	open, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	for _, fd := range open {
		if there, err := os.Stat(fd); err == nil && os.SameFile(there, file) {
			return true
		}
	}
	return false
}

// String names it.
func (h *Holder) String() string {
	if h.PID == 0 {
		return "a process that left no number"
	}
	return fmt.Sprintf("process %d", h.PID)
}

// Command ends it, or says which process it is where that is not known.
func (h *Holder) Command() string {
	if h.PID == 0 {
		return whoHas(h.lock)
	}
	return fmt.Sprintf("kill %d", h.PID)
}

// Step is the advice to end it, in the words of what, with the command for it.
func (h *Holder) Step(what string) string {
	if h.PID == 0 {
		what += ". See which one it is"
	}
	return remedy.Step(what, h.Command())
}
