package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killAtOnce ends an executor with all its helpers so that none of them can
// act: first they are stopped. The executor dies last: without one, a keeper that is
// stopped would be continued by whoever recovers elsewhere on this machine.
func killAtOnce(t *testing.T, executor *exec.Cmd) {
	t.Helper()
	pids := helpersOf(executor.Process.Pid)
	slices.SortFunc(pids, func(a, b int) int { // supervisors first
		return strings.Compare(commandLine(b)[0], commandLine(a)[0])
	})
	pids = append(pids, executor.Process.Pid)
	send := func(pid int, sig unix.Signal) {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
	for _, pid := range slices.Backward(pids) {
		send(pid, unix.SIGSTOP)
		eventually(t, 10*time.Second, "a stopped process", func() bool { p, err := readProc(pid); return err != nil || p.state == 'T' })
	}
	for _, pid := range pids {
		send(pid, unix.SIGKILL)
	}
	_ = executor.Wait()
}

func TestRecoverEndsWhatNoHelperCouldEnd(t *testing.T) {
	t.Parallel()
	x := torture{command: "setsid sleep %[1]s & (env -i setsid sh -c 'sleep %[1]s & wait') & sleep %[1]s & wait"}
	s, token := x.spec(t)
	executor, r := startHost(t, s)
	sleepers := func() (n int) {
		for _, pid := range tokenHolders(s, token) {
			if argv := commandLine(pid); len(argv) == 2 && argv[1] == token {
				n++
			}
		}
		return n
	}
	eventually(t, 10*time.Second, "three sleepers", func() bool { return sleepers() == 3 })
	killAtOnce(t, executor)
	if sleepers() != 3 {
		t.Fatal("the command ended though nothing ended it")
	}
	if err := Recover(context.Background(), []Recorded{r}, nil); err != nil {
		t.Errorf("Recover: %v", err)
	}
	for _, pid := range tokenHolders(s, token) {
		// Only what cleaned its environment and lost its parents may be left;
		// here its parent carries the marker, so nothing is.
		t.Errorf("pid %d (%q) is alive", pid, commandLine(pid))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func TestRecoverEndsTheTreeOfAStoppedSupervisor(t *testing.T) {
	t.Parallel()
	x := hidden
	s, token := x.spec(t)
	executor, r := startHost(t, s)
	x.awaitUp(t, s, token)
	// The keeper would continue a supervisor that is stopped: it goes first.
	for _, helper := range helpersOf(executor.Process.Pid) {
		if commandLine(helper)[0] == keeperName {
			if err := unix.Kill(helper, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, 5*time.Second, "the keeper's end", func() bool {
				p, err := readProc(helper)
				return err != nil || !p.live()
			})
		}
	}
	if err := unix.Kill(r.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_ = executor.Process.Kill()
	_ = executor.Wait()
	if err := Recover(context.Background(), []Recorded{r}, nil); err != nil {
		t.Errorf("Recover: %v", err)
	}
	awaitNone(t, s, token)
}

// A supervisor that takes long to end its tree is ended by its keeper, to which the
// tree falls: it is not over with the supervisor.
func TestRecoverWaitsForAKeeperThatIsStillEndingATree(t *testing.T) {
	t.Parallel()
	x := torture{command: "(env -i setsid /bin/sleep %[1]s &)"}
	_, token := x.spec(t)
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.Command("/bin/bash")
	keeper.Args = []string{keeperName}
	keeper.Env = []string{executorVariable + "=" + identity(proc{pid: 1 << 22, start: 1})}
	keeper.Stdin = strings.NewReader("/bin/sleep " + token + " & /bin/sleep 1; kill -9 $!; wait")
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()
	none := Spec{InstructionID: "ins_of_nobody"}
	x.awaitUp(t, none, token)
	if err := Recover(context.Background(), []Recorded{{BootID: boot, PID: 1 << 22, StartTime: 1, InstructionID: none.InstructionID}}, nil); err != nil {
		t.Errorf("Recover: %v", err)
	}
	if left := tokenHolders(none, token); len(left) > 0 {
		t.Errorf("called over while %v are alive", left)
	}
	<-ended
}

// Between two processes of a tree that keeps on forking, nothing is seen below its
// keeper: a keeper with nothing below it is over only when it ends.
func TestRecoverIsNotDeceivedByAMomentWithoutProcesses(t *testing.T) {
	t.Parallel()
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.Command("/bin/bash")
	keeper.Args = []string{keeperName}
	keeper.Env = []string{executorVariable + "=" + identity(proc{pid: 1 << 22, start: 1})}
	keeper.Stdin = strings.NewReader("for ((n=0; n<100; n++)); do /bin/sleep .005; for ((i=0; i<500; i++)); do :; done; done; exit 0\n")
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := readProc(keeper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()
	eventually(t, 10*time.Second, "its first child", func() bool {
		tree, _ := descendants(p.pid, nil)
		return len(tree) > 0
	})
	if err := Recover(context.Background(), []Recorded{{BootID: boot, PID: 1 << 22, StartTime: 1, InstructionID: "ins_of_nobody"}}, nil); err != nil {
		t.Errorf("Recover: %v", err)
	}
	if sameAndAlive(p.identity()) {
		t.Error("called over while its keeper is still at it")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestForgedAndTornEntriesHarmNobody(t *testing.T) {
	t.Parallel()
	bystander := exec.Command("sleep", "300")
	bystander.Env = append(os.Environ(), Marker+"=")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	died := make(chan error, 1)
	go func() { died <- bystander.Wait() }()
	t.Cleanup(func() { bystander.Process.Kill(); <-died })
	victim, err := readProc(bystander.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}

	// A command of an executor that is alive, ours.
	c := newControl(t)
	cmd, s, _ := torture{command: "sleep %[1]s"}.begin(t, c)
	live := cmd.(*command).recorded

	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	init, err := readProc(1)
	if err != nil {
		t.Fatal(err)
	}
	err = Recover(context.Background(), []Recorded{
		{},
		{BootID: boot},
		{BootID: boot, PID: -1, StartTime: 1, InstructionID: ""},
		{BootID: boot, PID: 1, StartTime: init.start, InstructionID: "\x00"},
		{BootID: boot, PID: victim.pid, StartTime: victim.start, InstructionID: "ins_forged"},
		{BootID: boot, PID: victim.pid, StartTime: victim.start - 1, InstructionID: "ins_reused"},
		{BootID: "another", PID: victim.pid, StartTime: victim.start, InstructionID: s.InstructionID},
		live,
		{BootID: boot, PID: os.Getpid(), InstructionID: s.InstructionID},
	}, nil)
	if err != nil {
		t.Errorf("Recover: %v", err)
	}
	select {
	case <-died:
		t.Error("a process that has nothing to do with it was ended")
	case <-cmd.Exited():
		t.Error("a command of an executor that is alive was ended")
	default:
	}
}

func TestStatIsReadWhateverTheProgramIsCalled(t *testing.T) {
	t.Parallel()
	line := "7 (a) b) S 1 7 8 0 -1 4194560 1 5 0 0 0 0 0 0 20 0 3 0 12345 8192 1"
	p, err := parseStat(7, []byte(line))
	if want := (proc{pid: 7, ppid: 1, session: 8, state: 'S', threads: 3, start: 12345, reaped: 5}); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("7 (a) b) S 1 7 7 0 -1 4194560 1 5 0 0 0 0 0 0 20 0 3 0 12345 8192 1"))
	f.Add([]byte("7 (x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseStat(7, b)
		if err == nil && p.pid != 7 {
			t.Errorf("%+v", p)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add((&request{serial: 3, shell: "/bin/sh", command: "true", dir: "/", env: []string{"A=1"}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRequest(b)
		if err != nil {
			return
		}
		again, err := decodeRequest(r.encode())
		if err != nil || again.serial != r.serial || again.command != r.command || len(again.env) != len(r.env) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}
