package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// canLook reports whether this system shows sockets and memory of others.
const canLook = false

var errCannotLook = errors.New("this system does not show it")

// bind does nothing: no process is told here that its parent was killed. See guard.
func bind(*syscall.SysProcAttr) {}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	out, err := exec.Command("/bin/ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func listening(int, string) ([]string, error) { return nil, errCannotLook }

// carrying lists none: what left its process group is not found here.
func carrying(string) []int { return nil }

// family is the process alone.
func family(pid int) []int { return []int{pid} }

// children are the processes that a process has started, and not reaped.
func children(pid int) []int {
	out, err := exec.Command("/bin/ps", "-A", "-o", "ppid=,pid=").Output()
	if err != nil {
		return nil
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		var parent, child int
		if n, err := fmt.Sscan(line, &parent, &child); n == 2 && err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// commandLine is what a process was started with, its words parted by NUL.
func commandLine(pid int) string {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return ""
	}
	// The number of words, the program's path, padding, and then the words.
	n := int(binary.NativeEndian.Uint32(b))
	_, rest, _ := bytes.Cut(b[4:], []byte{0})
	words := bytes.SplitN(bytes.TrimLeft(rest, "\x00"), []byte{0}, n+1)
	return string(bytes.Join(words[:min(n, len(words))], []byte{0}))
}

func memory(int) (int64, error) { return 0, errCannotLook }
