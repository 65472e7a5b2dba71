package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Whoever hears that nothing was started relies on it.
func TestAStartThatMeetsACloseSaysWhetherTheCommandRan(t *testing.T) {
	t.Parallel()
	for range 5 {
		ran := filepath.Join(t.TempDir(), "ran")
		var c Control
		closed := make(chan error, 1)
		c, err := New(Config{Before: func(Recorded) error {
			go func() { closed <- c.Close() }()
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := c.Start(context.Background(), spec("echo > '"+ran+"'; sleep 300"))
		if err == nil {
			cmd.Release()
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		var alive *SurvivorsError
		if _, there := os.Stat(ran); there == nil && err != nil && !errors.As(err, &alive) && !errors.Is(err, ErrLost) {
			t.Errorf("%v, and it ran", err)
		}
	}
}
