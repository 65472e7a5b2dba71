package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keep runs a command, as a process of its own between the command and the executor,
// and lets nothing of it live on: neither after the command's own end nor after the
// executor closes the pipe or dies. What leaves its parent in there falls to this
// process and so stays to be found, wherever adopt can do its work; elsewhere what
// left its parent and its group too is out of reach.
func keep(command string) int {
	adopt()
	gate := os.NewFile(3, "gate")
	syscall.CloseOnExec(3)
	if n, _ := gate.Read(make([]byte, 1)); n == 0 {
		return 126 // the executor is gone already
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		os.Stderr.WriteString("minimal: " + err.Error() + "\n")
		return 126
	}
	ended, closed := make(chan struct{}), make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	go func() {
		gate.Read(make([]byte, 1))
		close(closed)
	}()
	select {
	case <-ended:
	case <-closed:
	}
	endTree()
	<-ended
	code := cmd.ProcessState.ExitCode()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		code = 128 + int(s.Signal())
	}
	return code
}

// endTree ends all descendants of this process and all others of its group, and
// returns when they are dead.
func endTree() {
	for left := members(os.Getpid()); len(left) > 0; left = members(os.Getpid()) {
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// members lists the living processes that descend from a process or are of its group,
// without this one.
func members(root int) []int {
	parents, groups := map[int]int{}, map[int]int{}
	for {
		ps := exec.Command("ps", "-A", "-o", "pid=,ppid=,pgid=,stat=")
		out, err := ps.Output()
		if err != nil {
			time.Sleep(10 * time.Millisecond) // nothing is known, so nothing is dead
			continue
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) < 4 || strings.HasPrefix(f[3], "Z") {
				continue
			}
			if pid, _ := strconv.Atoi(f[0]); pid != ps.Process.Pid {
				parents[pid], _ = strconv.Atoi(f[1])
				groups[pid], _ = strconv.Atoi(f[2])
			}
		}
		break
	}
	tree := map[int]bool{root: true}
	for grown := true; grown; {
		grown = false
		for pid, parent := range parents {
			if !tree[pid] && (tree[parent] || groups[pid] == root) {
				tree[pid], grown = true, true
			}
		}
	}
	var found []int
	for pid := range tree {
		if _, lives := parents[pid]; lives && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
