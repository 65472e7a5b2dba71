package fence

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/internal/regular"
)

// holderFile is beside the lock, and names the process that holds it. A lock belongs
// to the file that was opened: where that was removed, or the whole folder copied
// elsewhere, whoever asks opens another, finds it free, and has this to go by.
const holderFile = "holder.json"

// instance names one process of this machine, whatever numbers are used again.
type instance struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // in the kernel's own unit
	BootID    string `json:"bootId"`
}

func holderPath(lock string) string { return filepath.Join(filepath.Dir(lock), holderFile) }

// thisInstance is this process.
func thisInstance() (instance, error) {
	boot, err := process.BootID()
	if err != nil {
		return instance{}, err
	}
	start, ok := process.StartTime(os.Getpid())
	if !ok {
		return instance{}, errors.New("this process is not to be found among the processes")
	}
	return instance{PID: os.Getpid(), StartTime: start, BootID: boot}, nil
}

// recordHolder says beside the lock that this process holds it. Where the system
// tells too little to name it, or the disk is full, there is nothing to go by.
func recordHolder(lock string) {
	path := holderPath(lock)
	_ = os.Remove(path) // it may be anything
	self, err := thisInstance()
	if err != nil {
		return
	}
	text, _ := json.Marshal(self) // of numbers and a string: cannot fail
	_ = os.WriteFile(path, append(text, '\n'), 0o600)
}

// recordedHolder is the process that holds the lock by the record beside it, 0 if
// there is none, or it is not alive any more.
func recordedHolder(lock string) (pid int) {
	path := holderPath(lock)
	text, err := regular.Read(path, 4<<10)
	if err != nil {
		return 0
	}
	var of instance
	if json.Unmarshal(text, &of) != nil || of.PID < 1 || of.BootID == "" {
		return 0
	}
	if boot, err := process.BootID(); err != nil || boot != of.BootID {
		return 0
	}
	if start, ok := process.StartTime(of.PID); !ok || start != of.StartTime {
		return 0
	}
	return of.PID
}
