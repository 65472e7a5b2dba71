package process

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rounds repeats what races; scripts/torture raises it.
var rounds = flag.Int("torture.rounds", 1, "rounds of each torture")

// torture is one way in which a command may try to outlive its end. %[1]s is
// an argument of sleep that no other process on the machine has.
type torture struct {
	name, command string
	shell         string
	root          bool // needs root
	ordinary      bool // not as root, whom ulimit -u does not bind
	many          int  // how many processes have to be up first
	killsHelper   bool
}

// hides starts a sleeper that neither lineage nor marker leads to.
const hides = "(env -i setsid /bin/sh -c '/bin/sleep %[1]s & exit' &); "

// hidden is the one that only a sub-reaper finds.
var hidden = torture{name: "double-fork-clean-env", command: hides + "sleep %[1]s", many: 2}

var tortures = []torture{
	{name: "sleep", command: "sleep %[1]s"},
	{name: "pipeline", command: "sleep %[1]s | sleep %[1]s | cat", many: 2},
	{name: "ignored-TERM", command: "trap '' TERM HUP INT; sleep %[1]s & wait; sleep %[1]s"},
	{name: "setsid", command: "setsid sleep %[1]s & wait"},
	{name: "nohup", command: "nohup sleep %[1]s >/dev/null 2>&1 & wait"},
	{name: "double-fork", command: "(setsid sh -c 'sleep %[1]s & exit' &); sleep %[1]s", many: 2},
	hidden,
	{name: "left-behind", command: "(env -i setsid /bin/sh -c '/bin/sleep %[1]s & exit' &)"},
	{name: "daemon", command: "setsid sh -c 'exec <&- >&- 2>&-; cd /; trap \"\" TERM; sleep %[1]s & sleep %[1]s & exit 0' & wait", many: 2},
	{name: "stopped-child", command: "sleep %[1]s & kill -STOP $!; wait"},
	{name: "stopped-shell", command: "sleep %[1]s & kill -STOP $$"},
	{name: "fork-loop", ordinary: true, command: "ulimit -u %[2]d; trap '' TERM; while :; do (sleep %[1]s &); done 2>/dev/null", shell: "/bin/bash", many: 20},
	{name: "fork-loop-other-user", root: true, many: 20,
		command: "exec setpriv --reuid=%[3]d --regid=%[3]d --clear-groups bash -c 'ulimit -u 60; while :; do (sleep %[1]s &); done 2>/dev/null'"},
	{name: "other-user", root: true, command: "setpriv --reuid=%[3]d --regid=%[3]d --clear-groups setsid sleep %[1]s & wait"},
	{name: "kills-supervisor", command: "sleep .2; kill -9 $PPID; sleep %[1]s", killsHelper: true},
	{name: "stops-supervisor", command: "kill -STOP $PPID; sleep %[1]s"},
	{name: "stops-keeper-and-supervisor",
		command: hides + stopsKeeper + "; kill -STOP $PPID; sleep %[1]s"},
	{name: "stops-keeper-and-kills-supervisor", killsHelper: true,
		command: hides + "sleep .2; " + stopsKeeper + "; kill -9 $PPID; sleep %[1]s"},
	{name: "kills-supervisor-and-hides", killsHelper: true,
		command: hides + "sleep .2; kill -9 $PPID; sleep %[1]s"},
}

// stopsKeeper stops the supervisor's parent.
const stopsKeeper = "while read -r name value; do case $name in PPid:) kill -STOP $value;; esac; done </proc/$PPID/status"

var tokens atomic.Int64

// spec fills in what is particular to one run.
func (x torture) spec(t *testing.T) (s Spec, token string) {
	t.Helper()
	n := tokens.Add(1)
	token = fmt.Sprintf("3%d.%d", n, os.Getpid())
	args := []any{token, processesOfThisUser() + 40, 200_000 + os.Getpid()*64%1_000_000 + int(n)}
	command := x.command
	for i, arg := range args {
		for _, verb := range []string{"s", "d"} {
			command = strings.ReplaceAll(command, fmt.Sprintf("%%[%d]%s", i+1, verb), fmt.Sprint(arg))
		}
	}
	s = spec(command)
	s.InstructionID = "ins_torture_" + strings.ReplaceAll(token, ".", "_")
	if x.shell != "" {
		s.Shell = x.shell
	}
	return s, token
}

// begin starts a torture and waits until it is up.
func (x torture) begin(t *testing.T, c Control) (cmd Command, s Spec, token string) {
	t.Helper()
	s, token = x.spec(t)
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cmd.Release)
	x.awaitUp(t, s, token)
	return cmd, s, token
}

func processesOfThisUser() (n int) {
	pids, _ := allPIDs()
	for _, pid := range pids {
		var st syscall.Stat_t
		if syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && int(st.Uid) == os.Getuid() {
			tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
			n += len(tasks)
		}
	}
	return n
}

// tokenHolders lists the live processes that run for this command: by the
// token in their arguments or the marker in their environment.
func tokenHolders(s Spec, token string) (pids []int) {
	all, _ := allPIDs()
	for _, pid := range all {
		p, err := readProc(pid)
		if err != nil || !p.live() {
			continue
		}
		name := "/proc/" + strconv.Itoa(pid)
		args, _ := os.ReadFile(name + "/cmdline")
		env, _ := os.ReadFile(name + "/environ")
		if bytes.HasPrefix(args, []byte("sleep\x00"+token)) || bytes.HasPrefix(args, []byte("/bin/sleep\x00"+token)) ||
			slices.Contains(strings.Split(string(env), "\x00"), Marker+"="+s.InstructionID) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (x torture) awaitUp(t *testing.T, s Spec, token string) {
	t.Helper()
	eventually(t, 15*time.Second, "the command's processes", func() bool {
		return len(tokenHolders(s, token)) >= max(1, x.many)
	})
}

// awaitCommand waits until the command is where it should be ended.
func (x torture) awaitCommand(t *testing.T, s Spec, token string, r Recorded) {
	t.Helper()
	if !x.killsHelper {
		x.awaitUp(t, s, token)
		return
	}
	eventually(t, 15*time.Second, "the supervisor's death", func() bool {
		p, err := readProc(r.PID)
		return err != nil || p.start != r.StartTime || !p.live()
	})
}

func awaitNone(t *testing.T, s Spec, token string) {
	t.Helper()
	var left []int
	eventually(t, 4*time.Second, "the end of every process", func() bool {
		left = tokenHolders(s, token)
		return len(left) == 0
	})
}

func eachTorture(t *testing.T, body func(t *testing.T, x torture)) {
	for _, x := range tortures {
		for round := range *rounds {
			t.Run(x.name+"/"+strconv.Itoa(round), func(t *testing.T) {
				t.Parallel()
				if x.root && os.Getuid() != 0 || x.ordinary && os.Getuid() == 0 {
					t.Skip("not as this user")
				}
				body(t, x)
			})
		}
	}
}

func TestTortureEnd(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	eachTorture(t, func(t *testing.T, x torture) {
		s, token := x.spec(t)
		cmd, err := c.Start(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Release()
		x.awaitCommand(t, s, token, cmd.(*command).recorded)
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		if err := cmd.End(ctx, 200*time.Millisecond); err != nil {
			t.Fatalf("End: %v", err)
		}
		if left := tokenHolders(s, token); len(left) > 0 {
			t.Errorf("End said dead, but %v are alive", left)
		}
		within(t, time.Second, "Exited", cmd.Exited())
		if err := cmd.Err(); err == nil && cmd.ExitCode() < 0 || err != nil && !errors.Is(err, ErrLost) {
			t.Errorf("exit code %d, err %v", cmd.ExitCode(), err)
		}
	})
}

func TestTortureKilledExecutor(t *testing.T) {
	t.Parallel()
	eachTorture(t, func(t *testing.T, x torture) {
		s, token := x.spec(t)
		executor, r := startHost(t, s)
		x.awaitCommand(t, s, token, r)
		if err := executor.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = executor.Wait()
		if err := Recover(context.Background(), []Recorded{r}, nil); err != nil {
			t.Errorf("Recover: %v", err)
		}
		awaitNone(t, s, token)
		eventually(t, 4*time.Second, "the helpers' end", func() bool { return len(helpersOf(executor.Process.Pid)) == 0 })
	})
}

// helpersOf lists the live helpers of an executor.
func helpersOf(pid int) (helpers []int) {
	all, _ := allPIDs()
	for _, p := range all {
		executor, ok := executorOf(p)
		if ok && executor.pid == pid {
			if q, err := readProc(p); err == nil && q.live() {
				helpers = append(helpers, p)
			}
		}
	}
	return helpers
}
