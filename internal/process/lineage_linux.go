package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// proc is what /proc/PID/stat says about one process. PID and start together
// name it for the whole boot, as far as the kernel's clock tick is fine enough;
// where a signal depends on it, the parentage is looked at again too.
type proc struct {
	pid, ppid int
	session   int
	state     byte
	threads   int
	start     uint64 // clock ticks since boot
	reaped    uint64 // page faults of the children it has taken in: more with each
}

// live is false for a zombie. A process whose first thread has ended while
// others run also shows as Z, and is alive.
func (p proc) live() bool {
	return p.state != 'X' && (p.state != 'Z' || p.threads > 1)
}

// identity is what names it.
func (p proc) identity() proc { return proc{pid: p.pid, start: p.start} }

// errNoProcess: no such process, or one that is not ours to see.
var errNoProcess = errors.New("no such process")

func readProc(pid int) (proc, error) {
	b, err := readSmall("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, errNoProcess
	}
	return parseStat(pid, b)
}

// StartTime is when the process with this number started, in the unit of [Recorded];
// false if it is not alive, or not ours to see.
func StartTime(pid int) (start uint64, ok bool) {
	p, err := readProc(pid)
	return p.start, err == nil && p.live()
}

// parseStat reads field 3 and on, behind the last parenthesis: the second
// field is the program's name, which may contain anything.
func parseStat(pid int, b []byte) (proc, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return proc{}, errNoProcess
	}
	const state, parent, session, reaped, threads, start = 0, 1, 3, 8, 17, 19
	fields := bytes.Fields(b[i+1:])
	if len(fields) <= start {
		return proc{}, errNoProcess
	}
	ppid, err1 := strconv.Atoi(string(fields[parent]))
	sid, err2 := strconv.Atoi(string(fields[session]))
	n, err3 := strconv.Atoi(string(fields[threads]))
	began, err4 := strconv.ParseUint(string(fields[start]), 10, 64)
	faults, err5 := strconv.ParseUint(string(fields[reaped]), 10, 64)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return proc{}, errNoProcess
	}
	return proc{pid: pid, ppid: ppid, session: sid, state: fields[state][0], threads: n, start: began, reaped: faults}, nil
}

func readSmall(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var b [1024]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return nil, err
	}
	return bytes.Clone(b[:n]), nil
}

// allPIDs lists the processes there are.
func allPIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// descendants lists the live descendants of root, parents before children, and
// leaves out the subtrees for which skip says so. It is a look at something
// that moves: what is born or adopted meanwhile may be missing.
func descendants(root int, skip func(proc) bool) ([]proc, error) {
	pids, err := allPIDs()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]proc)
	for _, pid := range pids {
		if p, err := readProc(pid); err == nil {
			children[p.ppid] = append(children[p.ppid], p)
		}
	}
	var found []proc
	queue := []int{root}
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		for _, p := range children[parent] {
			if skip != nil && skip(p) {
				continue
			}
			if p.live() {
				found = append(found, p)
			}
			queue = append(queue, p.pid)
		}
		delete(children, parent)
	}
	return found, nil
}

// descends reports whether p, as it is now, descends from root. Each link is
// read again after its parent was: a parent whose number was reused meanwhile
// would have changed the child's own entry.
func descends(p proc, root int) bool {
	now, err := readProc(p.pid)
	if err != nil || now.start != p.start {
		return false
	}
	for depth := 0; depth < 1<<15; depth++ {
		if now.ppid == root {
			return true
		}
		if now.ppid <= 1 {
			return false
		}
		parent, err := readProc(now.ppid)
		if err != nil {
			return false
		}
		again, err := readProc(now.pid)
		if err != nil || again.ppid != now.ppid || again.start != now.start {
			return false
		}
		now = parent
	}
	return false
}

// signalIf signals p through a descriptor that names the process and not its
// number, after check was made with that descriptor open: if p's number had
// been reused, the signal would find the old process gone.
func signalIf(p proc, check func(proc) bool, signals ...unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	named := err == nil
	if named {
		defer unix.Close(fd)
	}
	if !check(p) {
		return nil
	}
	for _, sig := range signals {
		var err error
		if named {
			err = unix.PidfdSendSignal(fd, sig, nil, 0)
		} else { // a kernel or a sandbox without pidfds
			err = unix.Kill(p.pid, sig)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// commandLine is the argument vector of a process, nil when it cannot be read.
func commandLine(pid int) []string { return nulSeparated(pid, "cmdline") }

// environment is what a process was started with, nil when it cannot be read.
func environment(pid int) []string { return nulSeparated(pid, "environ") }

func nulSeparated(pid int, name string) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// exitCode is a wait status in a shell's words.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
