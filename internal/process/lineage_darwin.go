package process

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// identity names one process for the whole boot.
type identity struct {
	pid   int
	start uint64 // µs since 1970
}

// proc is what the kernel's process table says about one process.
type proc struct {
	identity
	ppid, group int
	zombie      bool
}

// table is the kernel's process table.
func table() (map[int]proc, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	const zombie = 5 // SZOMB
	all := make(map[int]proc, len(list))
	for i := range list {
		k := &list[i]
		pid := int(k.Proc.P_pid)
		all[pid] = proc{
			identity: identity{pid: pid, start: microseconds(k.Proc.P_starttime)},
			ppid:     int(k.Eproc.Ppid), group: int(k.Eproc.Pgid), zombie: k.Proc.P_stat == zombie,
		}
	}
	return all, nil
}

// carries reports whether a process was started with this variable in its
// environment. The kernel answers for processes of our own user only.
func carries(pid int, variable string) bool {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	return err == nil && inEnvironment(b, variable)
}

// inEnvironment reads the kernel's layout: the number of arguments, the path
// of the program, padding, the arguments, the environment; each ended by NUL.
func inEnvironment(b []byte, variable string) bool {
	if len(b) < 4 {
		return false
	}
	args := int(binary.NativeEndian.Uint32(b))
	_, rest, ok := bytes.Cut(b[4:], []byte{0})
	if !ok {
		return false
	}
	for field := range bytes.SplitSeq(bytes.TrimLeft(rest, "\x00"), []byte{0}) {
		if args > 0 {
			args--
			continue
		}
		if string(field) == variable {
			return true
		}
	}
	return false
}

// below adds to members every descendant of a member.
func below(all map[int]proc, members map[identity]proc) {
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			parent, ok := all[p.ppid]
			if !ok {
				continue
			}
			_, inside := members[parent.identity]
			if _, already := members[p.identity]; inside && !already {
				members[p.identity] = p
				grown = true
			}
		}
	}
}

// lineOf is this process and what it descends from.
func lineOf(all map[int]proc) map[int]bool {
	line := make(map[int]bool)
	for pid := os.Getpid(); pid > 1 && !line[pid]; pid = all[pid].ppid {
		line[pid] = true
	}
	return line
}

func microseconds(t unix.Timeval) uint64 { return uint64(t.Sec)*1e6 + uint64(t.Usec) }

// startedAt is the process that has this number now.
func startedAt(pid int) (identity, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return identity{}, err
	}
	return identity{pid: pid, start: microseconds(k.Proc.P_starttime)}, nil
}

// signalAgain signals p if it is still the process it was a moment ago.
func signalAgain(p proc, signals ...unix.Signal) {
	if now, err := startedAt(p.pid); err != nil || now != p.identity {
		return
	}
	for _, sig := range signals {
		_ = unix.Kill(p.pid, sig) // EPERM: another user's; it shows as a survivor
	}
}
