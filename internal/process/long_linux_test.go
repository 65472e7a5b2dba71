package process

import (
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
)

// A process of its own, because a supervisor takes in every child there is.
func TestACommandMayRunForDays(t *testing.T) {
	t.Parallel()
	startedUnder(t, "", "TestInnerDays")
}

func TestInnerDays(t *testing.T) {
	onlyInside(t)
	shell := exec.Command("sleep", "300")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := readProc(shell.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // the days are virtual, the process is not
		ch, other, err := newChannelPair()
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll([]int{other})
		defer ch.close()
		inbox := make(chan message)
		s := &supervisor{ch: ch, inbox: inbox, shell: p.pid, script: -1, ended: make(map[proc]struct{})}
		over := make(chan struct{})
		go func() { s.attend(make(chan os.Signal)); close(over) }()
		time.Sleep(72 * time.Hour)
		if !sameAndAlive(p.identity()) {
			t.Error("its supervisor ended a command that nobody wanted ended")
		}
		close(inbox) // the executor is gone
		<-over
	})
}
