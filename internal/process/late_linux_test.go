package process

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// An error of the context says that nothing was started, so it must never be said
// of a command that ran for a moment.
func TestAStartThatIsCancelledRanNothingOrIsACommand(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	dir := t.TempDir()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for round := range 25 {
				mark := filepath.Join(dir, strconv.Itoa(worker)+"-"+strconv.Itoa(round))
				ctx, cancel := context.WithCancel(context.Background())
				after := time.AfterFunc(rand.N(6*time.Millisecond), cancel)
				cmd, err := c.Start(ctx, spec(": > "+mark+"; exec sleep 60"))
				after.Stop()
				cancel()
				switch {
				case err == nil:
					if err := cmd.End(context.Background(), 0); err != nil {
						t.Error(err)
					}
					cmd.Release()
				case errors.Is(err, context.Canceled):
					if _, err := os.Stat(mark); err == nil {
						t.Errorf("worker %d, round %d: it ran, and Start says that nothing was started", worker, round)
					}
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
