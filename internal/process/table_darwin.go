package process

import (
	"bytes"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/internal/process/lineage"
)

// table is the kernel's process table.
func table() (lineage.Table, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	all := make(lineage.Table, len(list))
	for i := range list {
		p := procOf(&list[i])
		all[p.PID] = p
	}
	return all, nil
}

func procOf(k *unix.KinfoProc) lineage.Proc {
	const zombie = 5 // SZOMB
	name, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
	return lineage.Proc{
		ID:     lineage.ID{PID: int(k.Proc.P_pid), Start: uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec)},
		Parent: int(k.Eproc.Ppid), Group: int(k.Eproc.Pgid), Name: string(name), Zombie: k.Proc.P_stat == zombie,
	}
}

// StartTime is when the process with this number started, in the unit of [Recorded];
// false if it is not alive.
func StartTime(pid int) (start uint64, ok bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, false
	}
	p := procOf(k)
	return p.Start, p.PID == pid && !p.Zombie
}

// kernel answers what the table does not say.
type kernel struct{}

// Session implements lineage.System.
func (kernel) Session(pid int) int {
	if sid, err := unix.Getsid(pid); err == nil {
		return sid
	}
	return 0
}

// Carries implements lineage.System. The kernel answers for processes of our own
// user only.
func (kernel) Carries(pid int, variables ...string) bool {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return false
	}
	for v := range lineage.Variables(b) {
		if slices.Contains(variables, v) {
			return true
		}
	}
	return false
}

// self is this process.
func self() (lineage.ID, error) { return startedAt(os.Getpid()) }

// startedAt is the process that has this number now.
func startedAt(pid int) (lineage.ID, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return lineage.ID{}, err
	}
	return procOf(k).ID, nil
}

// signalAgain signals p if it is still the process it was a moment ago.
func signalAgain(p lineage.Proc, signals ...unix.Signal) {
	if now, err := startedAt(p.PID); err != nil || now != p.ID {
		return
	}
	for _, sig := range signals {
		_ = unix.Kill(p.PID, sig) // EPERM: another user's; it shows as a survivor
	}
}
