package process

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// forkShell starts the shell with what a command starts with: a session of its own,
// no signal blocked, three descriptors, and a readiness to be ended for memory above
// its executor's.
func forkShell(r *request, command string, stdout, stderr int) (int, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(null)

	// The child's signal mask is that of the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, before unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &before); err == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	defer raiseOOMScore()()
	return syscall.ForkExec(r.shell, []string{r.shell, "-c", command}, &syscall.ProcAttr{
		Env:   r.env,
		Files: []uintptr{uintptr(null), uintptr(stdout), uintptr(stderr)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// oomScoreStep is how much readier the kernel should be to end a command than
// its executor.
const oomScoreStep = 200

// raiseOOMScore raises this process's score, for a child to inherit; the
// function it returns lowers it again, which the kernel allows also without
// privilege, down to where it was.
func raiseOOMScore() (lower func()) {
	const name = "/proc/self/oom_score_adj"
	nothing := func() {}
	b, err := readSmall(name)
	if err != nil {
		return nothing
	}
	score, err := strconv.Atoi(string(trimNewline(b)))
	if err != nil {
		return nothing
	}
	if writeSmall(name, strconv.Itoa(min(score+oomScoreStep, 1000))) != nil {
		return nothing
	}
	return func() { _ = writeSmall(name, strconv.Itoa(score)) }
}

func trimNewline(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}

func writeSmall(name, text string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}
