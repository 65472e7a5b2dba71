package process

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process of its own, because all that falls to this one may be ended.
func TestWhatLostItsSupervisorAndItsKeeperIsEndedByTheExecutor(t *testing.T) {
	t.Parallel()
	startedUnder(t, "", "TestInnerAdopted")
}

func TestInnerAdopted(t *testing.T) {
	onlyInside(t)
	bystanders := []*exec.Cmd{exec.Command("sleep", "300"), exec.Command("sleep", "300")}
	bystanders[1].SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, b := range bystanders {
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { b.Process.Kill(); b.Wait() }()
	}
	c := newControl(t)
	other, err := c.Start(context.Background(), spec("trap 'exit 5' TERM; sleep 300 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	for _, keeperFirst := range []bool{true, false} {
		cmd, s, token := hidden.begin(t, c)
		l := cmd.(*command).link
		helpers := []int{l.pid, l.keeper.pid}
		if keeperFirst {
			helpers = []int{l.keeper.pid, l.pid}
		}
		for _, pid := range helpers {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		within(t, 10*time.Second, "the end of all of it", cmd.Gone())
		if left := tokenHolders(s, token); len(left) > 0 {
			t.Errorf("called gone while %v are alive", left)
		}
		within(t, time.Second, "the shell's end", cmd.Exited())
		if err := cmd.Err(); err != nil && !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if err := cmd.End(context.Background(), 0); err != nil {
			t.Errorf("End: %v", err)
		}
	}
	for _, b := range bystanders {
		if p, err := readProc(b.Process.Pid); err != nil || !p.live() {
			t.Error("a process that is no command's was ended")
		}
	}
	if err := other.End(context.Background(), 5*time.Second); err != nil || other.ExitCode() != 5 {
		t.Errorf("another command, which had its supervisor: %v, exit code %d", err, other.ExitCode())
	}
	eventually(t, 10*time.Second, "no zombie", func() bool { return len(zombieChildren()) == 0 })
}
