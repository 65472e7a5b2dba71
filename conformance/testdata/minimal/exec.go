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
	// The command waits until its number is on record, and lives no longer than this
	// process holds the pipe: a crash at any moment ends it too.
	gate, open, err := os.Pipe()
	if err != nil {
		return failure("spawn_error", err.Error())
	}
	defer gate.Close()
	defer open.Close()
	self, err := os.Executable()
	if err != nil {
		return failure("spawn_error", err.Error())
	}
	cmd := exec.Command(self, "run", *args.Command)
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
	open.Write([]byte{1})
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
		open.Close() // which ends it
		<-exited
	}
	stopped := isClosed(w.ended) && w.why != ""
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
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return failure("outcome_unknown", "the command's keeper was killed: what the command started may still run")
	}
	if stopped || isClosed(w.ended) {
		return w.stopped(true)
	}
	code := cmd.ProcessState.ExitCode()
	return frame{"ok": true, "kind": "exec", "exitCode": code}
}

// bootTime tells one run of the machine from another.
func bootTime() string {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", "1").Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// endLeftovers waits until the commands of a process that was killed have ended, as
// their keepers see to. After a reboot their numbers are others', who are left alone.
func endLeftovers(home string) error {
	notes, err := filepath.Glob(filepath.Join(home, "group-*"))
	if err != nil {
		return err
	}
	for _, n := range notes {
		group, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(n), "group-"))
		if err != nil {
			continue
		}
		boot, err := os.ReadFile(n)
		deadline := time.Now().Add(5 * time.Second)
		for err == nil && string(boot) == bootTime() && len(members(group)) > 0 {
			if time.Now().After(deadline) { // there is no keeper any more
				syscall.Kill(-group, syscall.SIGKILL)
			}
			time.Sleep(10 * time.Millisecond)
		}
		os.Remove(n)
	}
	return nil
}
