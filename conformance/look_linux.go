package conformance

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// byParent lists all processes by their parents.
func byParent() map[int][]int {
	below := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return below
	}
	for _, e := range entries {
		if p, err := strconv.Atoi(e.Name()); err == nil {
			if parent, _, ok := statOf(p); ok {
				below[parent] = append(below[parent], p)
			}
		}
	}
	return below
}

// children are the processes that a process has started, and not reaped.
func children(pid int) []int { return byParent()[pid] }

// commandLine is what a process was started with, its words parted by NUL.
func commandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\x00")
}

// family is a process and all its living descendants.
func family(pid int) []int {
	below := byParent()
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, below[all[i]]...)
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

// listening lists the sockets that others can reach of a process, of its descendants,
// and of those that left it and still have the mark in their environment.
func listening(pid int, mark string) ([]string, error) {
	open := map[string]string{} // inode → address
	for table, t := range tables {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > t.inode && f[t.column] == t.mark {
				open[f[t.inode]] = strings.TrimSpace(table + " " + address(strings.Join(f[min(t.name, len(f)):min(t.name+1, len(f))], "")))
			}
		}
	}
	var found []string
	all := append(family(pid), carrying(mark)...)
	slices.Sort(all)
	for _, p := range slices.Compact(all) {
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

// address is an entry of these lists as people write it: of IPv4 0.0.0.0:80, of IPv6
// only the port, of others the name.
func address(entry string) string {
	host, port, ok := strings.Cut(entry, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	b, err2 := hex.DecodeString(host)
	switch {
	case !ok || err != nil || err2 != nil:
		return entry
	case len(b) == 4:
		return fmt.Sprintf("%d.%d.%d.%d:%d", b[3], b[2], b[1], b[0], n)
	}
	return fmt.Sprintf("port %d", n)
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
