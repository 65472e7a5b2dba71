package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// canLook reports whether this system shows sockets and memory of others.
const canLook = true

// bind makes a process end with the suite, also where the suite is killed.
func bind(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	_, state, ok := statOf(pid)
	return ok && state != "Z" && state != "X"
}

// statOf reads a process's parent and state.
func statOf(pid int) (parent int, state string, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	// The name stands in parentheses and may hold anything.
	rest := string(b[strings.LastIndexByte(string(b), ')')+1:])
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(f[1])
	return parent, f[0], err == nil
}

// family is a process and all its living descendants.
func family(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{pid}
	}
	children := map[int][]int{}
	for _, e := range entries {
		if p, err := strconv.Atoi(e.Name()); err == nil {
			if parent, _, ok := statOf(p); ok {
				children[parent] = append(children[parent], p)
			}
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// tables are the system's lists of sockets: in which column of a line is what
// marks one that others can reach, the mark, and in which its inode and its name.
var tables = map[string]struct {
	column      int
	mark        string
	inode, name int
}{
	"tcp":  {3, "0A", 9, 1}, // LISTEN
	"tcp6": {3, "0A", 9, 1},
	"udp":  {2, "00000000:0000", 9, 1}, // bound, and to no one peer
	"udp6": {2, "00000000000000000000000000000000:0000", 9, 1},
	"unix": {3, "00010000", 6, 7}, // accepts connections
}

// listening lists the sockets of a process and its descendants that others can
// reach.
func listening(pid int) ([]string, error) {
	open := map[string]string{} // inode → address
	for table, t := range tables {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > t.inode && f[t.column] == t.mark {
				open[f[t.inode]] = strings.Join(append([]string{table}, f[min(t.name, len(f)):min(t.name+1, len(f))]...), " ")
			}
		}
	}
	var found []string
	for _, p := range family(pid) {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p))
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			to, err := os.Readlink(l)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			inode, ok := strings.CutPrefix(to, "socket:[")
			if at, listens := open[strings.TrimSuffix(inode, "]")]; ok && listens {
				found = append(found, fmt.Sprintf("process %d listens on %s", p, at))
			}
		}
	}
	return found, nil
}

// carrying lists the living processes whose environment has an entry.
func carrying(entry string) []int {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && strings.Contains("\x00"+string(b), "\x00"+entry+"\x00") && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// memory is the resident set of a process, in bytes.
func memory(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}
