package conformance

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a started command line.
type process struct {
	cmd  *exec.Cmd
	line string        // as the shell has it
	done chan struct{} // closed when it has ended and was reaped
	out  *printed
}

// markName is the variable by which what an executor left behind is found at the
// end of a row, on systems that show the environment of processes.
const markName = "CONFORMANCE_ROW"

func markOf(dir string) string { return markName + "=" + dir }

// launch starts a command line; what it prints is kept in a new file in dir.
func launch(p place, line, dir string, enrolling bool) (*process, error) {
	out, w, err := newPrinted(dir)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	x := &process{done: make(chan struct{}), out: out}
	x.line = p.fill(line)
	x.cmd = exec.Command("/bin/sh", "-c", x.line)
	x.cmd.Env = append(p.environ(enrolling), markOf(dir))
	x.cmd.Dir = dir
	x.cmd.Stdout, x.cmd.Stderr = w, w
	// A group of its own: an interrupt at the terminal is for the suite, which
	// then ends what it started.
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bind(x.cmd.SysProcAttr)
	if err := x.start(); err != nil {
		out.close()
		return nil, err
	}
	return x, nil
}

// start starts it and has a goroutine wait for its end.
func (x *process) start() error {
	started := make(chan error)
	go func() {
		// What bind asks for follows the thread that starts it: the thread must
		// last as long as the process, and ends with this goroutine.
		runtime.LockOSThread()
		defer close(x.done)
		err := x.cmd.Start()
		var released func()
		if err == nil {
			if released, err = guard(x.pid()); err != nil {
				_ = syscall.Kill(-x.pid(), syscall.SIGKILL)
				_ = x.cmd.Wait()
			}
		}
		started <- err
		if err == nil {
			_ = x.cmd.Wait() // its code is in ProcessState
			released()
		}
	}()
	return <-started
}

// pid is the shell's, or that of the command that took its place; the other
// processes of the line descend from it.
func (x *process) pid() int { return x.cmd.Process.Pid }

// runs lists the processes to which signals go: the one that took the shell's place,
// as that of the last command mostly does; of a shell that stays, those that it has
// started, also through subshells; and the shell itself where it has started none.
func (x *process) runs() []int {
	stays := strings.Join([]string{"/bin/sh", "-c", x.line}, "\x00")
	for level := []int{x.pid()}; ; {
		var below, others []int
		for _, pid := range level {
			if commandLine(pid) == stays { // forked by the shell, so called as it was
				below = append(below, children(pid)...)
			} else {
				others = append(others, pid)
			}
		}
		if len(others) > 0 {
			return others
		}
		if len(below) == 0 {
			return []int{x.pid()}
		}
		level = below
	}
}

// ended reports whether it is over.
func (x *process) ended() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// within waits until it is over, and reports whether it was in time.
func (x *process) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-x.done:
		return true
	case <-t.C:
		return false
	}
}

// code is its exit code, -1 if a signal ended it. Only once ended.
func (x *process) code() int {
	<-x.done
	return x.cmd.ProcessState.ExitCode()
}

func (x *process) signal(s syscall.Signal) {
	if x.ended() {
		return
	}
	for _, pid := range x.runs() {
		if pid == x.pid() {
			_ = x.cmd.Process.Signal(s) // it may be over already
		} else {
			_ = syscall.Kill(pid, s)
		}
	}
}

// kill ends it as a crash does, and waits. A shell that goes on by itself then ends
// too.
func (x *process) kill() {
	x.signal(syscall.SIGKILL)
	if !x.within(2 * time.Second) {
		_ = syscall.Kill(-x.pid(), syscall.SIGKILL)
		<-x.done
	}
}

// finish ends it at the end of a row, with its process group. It is asked first,
// so that a sound executor ends its own commands.
func (x *process) finish() {
	if x.ended() {
		return
	}
	x.signal(syscall.SIGCONT)
	x.signal(syscall.SIGTERM)
	if x.within(200 * time.Millisecond) {
		return
	}
	x.signal(syscall.SIGTERM)
	if !x.within(5 * time.Second) {
		_ = syscall.Kill(-x.pid(), syscall.SIGKILL)
		<-x.done
	}
}

// guard has a process group killed when this process ends without releasing it,
// however it ends. What bind does for the shell's own process, this does for what the
// shell has started.
func guard(group int) (release func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// A line lets it go; the end of the pipe without one is the suite's.
	watcher := exec.Command("/bin/sh", "-c", `read -r line <&3 || kill -s KILL -- "-$0"`, strconv.Itoa(group))
	watcher.ExtraFiles = []*os.File{r}
	watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is not for it
	if err := watcher.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return func() {
		_, _ = w.WriteString("over\n") // it may have been killed
		_ = w.Close()
		_ = watcher.Wait()
	}, nil
}

// sweep kills what executors left behind, once they have ended: whatever carries
// the row's mark.
func sweep(mark string) {
	for range 20 { // one may start another meanwhile
		left := carrying(mark)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
