package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// standing is what a process hands down to its children beside what it tells them:
// a command that changes its supervisor's would change that of commands to come.
type standing struct {
	limits   [16]unix.Rlimit // all there are
	nice     int
	cpus     unix.CPUSet
	oomScore string
}

// standingNow is this process's standing. What cannot be read compares as equal to
// what could not be read before.
func standingNow() (s standing) {
	for i := range s.limits {
		_ = unix.Getrlimit(i, &s.limits[i])
	}
	s.nice, _ = unix.Getpriority(unix.PRIO_PROCESS, os.Getpid())
	_ = unix.SchedGetaffinity(os.Getpid(), &s.cpus)
	b, _ := readSmall("/proc/self/oom_score_adj")
	s.oomScore = string(b)
	return s
}
