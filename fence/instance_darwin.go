package fence

import "golang.org/x/sys/unix"

// bootID names the boot of this machine.
func bootID() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }

// startOf is when the process with this number started, in µs since 1970 by the wall
// clock as it was then; none if it is not alive.
func startOf(pid int) (start uint64, ok bool) {
	const zombie = 5 // SZOMB
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == zombie {
		return 0, false
	}
	return uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec), true
}
