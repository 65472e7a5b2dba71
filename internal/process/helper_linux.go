package process

import (
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The two kinds of helper process, by their argv[0]. Their short name stays
// the kernel's "exe" on purpose: `pkill -9 sema` then ends the executor alone,
// and the helpers live to end its commands.
const (
	keeperName     = "sema-keeper"
	supervisorName = "sema-supervisor"

	// executorVariable, in a helper's environment, names its executor as
	// pid:start. Without it a helper's argv[0] means nothing.
	executorVariable = "SEMA_HELPER_OF"

	// channelFD is where a helper finds its channel.
	channelFD = 3
)

// RunIfSupervisor must be the first statement of main, and of TestMain in
// every test binary that starts commands. In a helper process it does the
// helper's work and never returns; everywhere else it returns at once.
func RunIfSupervisor() {
	if len(os.Args) != 1 || os.Getenv(executorVariable) == "" {
		return
	}
	switch os.Args[0] {
	case keeperName:
		becomeHelper(keep)
	case supervisorName:
		becomeHelper(supervise)
	}
}

// startHelper starts this very program as a helper whose channel is fd. The
// path works also when the file on disk has been replaced.
func startHelper(name, executor string, fd int) (pid int, err error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(null)
	return syscall.ForkExec("/proc/self/exe", []string{name}, &syscall.ProcAttr{
		Dir: "/",
		// One processor and no collection until 16 MiB: a helper mostly waits.
		Env: []string{
			executorVariable + "=" + executor,
			"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=16MiB", "GODEBUG=asyncpreemptoff=1",
			"GORACE=atexit_sleep_ms=0", // in tests: the race detector sleeps 1 s at each exit
		},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(fd)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// becomeHelper sets up what both helpers need and runs one of them.
func becomeHelper(run func(*channel)) {
	debug.SetTraceback("none")
	keepDescriptorsFromCommands()
	takeSignals()
	reserveThreads(helperThreads)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		os.Exit(1)
	}
	if err := unix.SetNonblock(channelFD, true); err != nil {
		os.Exit(1)
	}
	ch, err := newChannel(channelFD)
	if err != nil {
		os.Exit(1)
	}
	run(ch)
	os.Exit(0)
}

// keepDescriptorsFromCommands marks everything above 2 close-on-exec, also
// what whoever started the executor left open.
func keepDescriptorsFromCommands() {
	const all = ^uint(0) >> 33 // the largest descriptor there can be
	if unix.CloseRange(3, all, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range dir {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// takeSignals makes a helper survive every signal that can be survived, and
// commands start with default dispositions: a signal that is handled here is
// reset by exec, while one that is ignored (as under nohup) would stay ignored.
func takeSignals() { signal.Notify(make(chan os.Signal, 1)) }

// executorOf names the executor of a helper process.
func executorOf(pid int) (executor proc, ok bool) {
	for _, v := range environment(pid) {
		if s, found := strings.CutPrefix(v, executorVariable+"="); found {
			return parseIdentity(s)
		}
	}
	return proc{}, false
}

func identity(p proc) string {
	return strconv.Itoa(p.pid) + ":" + strconv.FormatUint(p.start, 10)
}

func parseIdentity(s string) (proc, bool) {
	pid, start, ok := strings.Cut(s, ":")
	n, err1 := strconv.Atoi(pid)
	began, err2 := strconv.ParseUint(start, 10, 64)
	if !ok || err1 != nil || err2 != nil {
		return proc{}, false
	}
	return proc{pid: n, start: began}, true
}
