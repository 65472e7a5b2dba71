package process

import (
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
)

// A process of its own, because a keeper takes in every child there is.
func TestAKeeperThatHearsOfManyEndsStillLooksForOrphans(t *testing.T) {
	t.Parallel()
	startedUnder(t, "", "TestInnerManyEnds")
}

func TestInnerManyEnds(t *testing.T) {
	onlyInside(t)
	orphan := exec.Command("sleep", "300")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := readProc(orphan.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ch, other, err := newChannelPair()
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll([]int{other})
		defer ch.close()
		inbox, children := make(chan message), make(chan os.Signal)
		k := &keeper{ch: ch, supervisors: map[int]bool{}, clean: cleanRounds}
		over := make(chan struct{})
		go func() { k.attend(inbox, children); close(over) }()
		for n := 0; sameAndAlive(p.identity()); n++ {
			if n == 20_000 {
				t.Error("news of ends came every millisecond for 20 s, and an orphan lives")
				break
			}
			time.Sleep(time.Millisecond)
			children <- os.Interrupt // whatever it is, it says only that there is news
		}
		close(inbox)
		<-over
	})
}
