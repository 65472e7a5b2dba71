package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func (w *work) exec(f serverFrame) frame {
	var args struct {
		Command *string `json:"command"`
	}
	if json.Unmarshal(f.Args, &args) != nil || args.Command == nil {
		return failure("invalid", "args.command is not a text")
	}
	// The command waits until its number is on record, so that a crash at any moment
	// leaves either no command or one that the next start finds.
	gate, open, err := os.Pipe()
	if err != nil {
		return failure("spawn_error", err.Error())
	}
	defer gate.Close()
	defer open.Close()
	cmd := exec.Command("/bin/sh", "-c", `read -r go <&3 && exec /bin/sh -c "$0" 3<&-`, *args.Command)
	cmd.ExtraFiles = []*os.File{gate}
	cmd.Dir = f.Cwd
	if cmd.Dir == "" {
		cmd.Dir = w.a.id.Workspace
	}
	if info, err := os.Stat(cmd.Dir); err != nil || !info.IsDir() {
		return failure("not_found", "cwd "+cmd.Dir+" is no folder; nothing was started")
	}
	cmd.Env = os.Environ()
	for name, value := range f.ShellEnv {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var readers sync.WaitGroup
	var ends []*os.File
	for _, kind := range []string{"stdout", "stderr"} {
		r, wr, err := os.Pipe()
		if err != nil {
			return failure("spawn_error", err.Error())
		}
		defer r.Close()
		defer wr.Close()
		ends = append(ends, r)
		if kind == "stdout" {
			cmd.Stdout = wr
		} else {
			cmd.Stderr = wr
		}
		readers.Go(func() {
			buf := make([]byte, 48<<10)
			for {
				n, err := r.Read(buf)
				if !w.put(kind, buf[:n]) || err != nil {
					return
				}
			}
		})
	}
	if isClosed(w.ended) {
		for _, r := range ends {
			r.Close()
		}
		return w.stopped(false)
	}
	if err := cmd.Start(); err != nil {
		return failure("spawn_error", err.Error())
	}
	pid := cmd.Process.Pid
	note := filepath.Join(w.a.home, "group-"+strconv.Itoa(pid))
	if err := os.WriteFile(note, []byte(bootTime()), 0o600); err != nil {
		syscall.Kill(-pid, syscall.SIGKILL)
		cmd.Wait()
		return failure("spawn_error", err.Error())
	}
	defer os.Remove(note)
	open.Write([]byte("go\n"))
	cmd.Stdout.(*os.File).Close()
	cmd.Stderr.(*os.File).Close()

	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	select {
	case <-exited:
	case <-w.ended:
		killTree(pid)
		<-exited
	}
	stopped := isClosed(w.ended) && w.why != ""
	syscall.Kill(-pid, syscall.SIGKILL) // nothing outlives its command
	drained := make(chan struct{})
	go func() {
		readers.Wait()
		close(drained)
	}()
	// While nobody takes the output, the rest of it waits; a holder of the pipe
	// that cannot be reached does not hold up the answer.
	for idle := 0; idle < 10; idle++ {
		select {
		case <-drained:
			idle = 10
		case <-time.After(100 * time.Millisecond):
			w.a.mu.Lock()
			if w.held > mostUnacked && !isClosed(w.ended) {
				idle = 0
			}
			w.a.mu.Unlock()
		}
	}
	for _, r := range ends {
		r.Close()
	}
	<-drained
	if stopped || isClosed(w.ended) {
		return w.stopped(true)
	}
	code := cmd.ProcessState.ExitCode()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		code = 128 + int(s.Signal())
	}
	return frame{"ok": true, "kind": "exec", "exitCode": code}
}

// living lists the processes that are no zombies, with their parents.
func living() map[int]int {
	parents := map[int]int{}
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return parents
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[2], "Z") {
			continue
		}
		pid, _ := strconv.Atoi(f[0])
		parents[pid], _ = strconv.Atoi(f[1])
	}
	return parents
}

// killTree ends a process and all its descendants and returns when they are dead.
func killTree(root int) {
	tree := map[int]bool{root: true}
	for {
		parents := living()
		for grown := true; grown; {
			grown = false
			for pid, parent := range parents {
				if tree[parent] && !tree[pid] {
					tree[pid], grown = true, true
				}
			}
		}
		left := 0
		for pid := range tree {
			if _, alive := parents[pid]; alive {
				left++
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// bootTime tells one run of the machine from another.
func bootTime() string {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", "1").Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// endLeftovers ends the commands of a process that was killed. After a reboot their
// numbers are others', who are left alone.
func endLeftovers(home string) error {
	notes, err := filepath.Glob(filepath.Join(home, "group-*"))
	if err != nil {
		return err
	}
	for _, n := range notes {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(n), "group-"))
		if err != nil {
			continue
		}
		boot, err := os.ReadFile(n)
		for err == nil && string(boot) == bootTime() && syscall.Kill(-pid, syscall.SIGKILL) == nil && anyInGroup(pid) {
			time.Sleep(10 * time.Millisecond)
		}
		os.Remove(n)
	}
	return nil
}

// anyInGroup reports whether a process of the group is alive.
func anyInGroup(group int) bool {
	for pid := range living() {
		if g, err := syscall.Getpgid(pid); err == nil && g == group {
			return true
		}
	}
	return false
}
