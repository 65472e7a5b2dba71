package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// place is what a command line is told of its row; temp is its TMPDIR.
type place struct {
	server, home, workspace, temp, credential string
}

// fill puts the row's words into a command line.
func (p place) fill(line string) string {
	return strings.NewReplacer(
		"{server}", quote(p.server),
		"{home}", quote(p.home),
		"{workspace}", quote(p.workspace),
		"{credential}", quote(p.credential),
	).Replace(line)
}

// quote makes one word of the shell of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// environ is the environment of a command line: this process's own, less what
// would reach a server or a home other than the row's.
func (p place) environ(enrolling bool) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "SEMA_SERVER", "SEMA_HOME", "SEMA_WORKSPACE", "SEMA_CREDENTIAL", "SEMA_ENROLL_TOKEN", "TMPDIR", markName:
		default:
			env = append(env, v)
		}
	}
	env = append(env, "SEMA_SERVER="+p.server, "SEMA_HOME="+p.home, "SEMA_WORKSPACE="+p.workspace, "TMPDIR="+p.temp)
	if enrolling {
		env = append(env, "SEMA_CREDENTIAL="+p.credential)
	}
	return env
}

// process is a started command line.
type process struct {
	cmd  *exec.Cmd
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
	x.cmd = exec.Command("/bin/sh", "-c", "exec "+p.fill(line))
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
		started <- err
		if err == nil {
			_ = x.cmd.Wait() // its code is in ProcessState
		}
	}()
	return <-started
}

func (x *process) pid() int { return x.cmd.Process.Pid }

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
	_ = x.cmd.Process.Signal(s) // it may be over already
}

// kill ends it as a crash does, and waits.
func (x *process) kill() {
	x.signal(syscall.SIGKILL)
	<-x.done
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

// grep lists the files in the row's folder that contain any of the texts, less those
// in the workspace, where texts are put on purpose, and those that hold what was
// printed.
func (c *Case) grep(texts ...string) (found []string, err error) {
	err = filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil {
			return err
		}
		if path == c.place.workspace {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || isPrinted(path) {
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, t := range texts {
			if t != "" && strings.Contains(string(b), t) {
				found = append(found, fmt.Sprintf("%s holds %q", path, cut(t, 24)))
			}
		}
		return nil
	})
	return found, err
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// Ours returns the two command lines of the `sema` binary at path.
func Ours(path string) (enroll, serve string) {
	self := quote(path)
	return self + " device enroll --server {server} --workspace {workspace} --key-store file --name conformance --json",
		self + " device serve --env inherit"
}
