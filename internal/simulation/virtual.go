package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/executor"
)

// Virtual plays a schedule in virtual time, in a bubble of its own: the processes
// and the files are made up.
func Virtual(t *testing.T, s Schedule) (r *Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r = newWorld(t.Context(), s, newMadeUp(s.Seed)).play()
	})
	return r
}

// madeUp is the ground of virtual time.
type madeUp struct {
	*machine
	*disk
}

func newMadeUp(seed uint64) func(*judge) ground {
	return func(j *judge) ground {
		m := newMachine(seed, j)
		return &madeUp{m, newDisk(m)}
	}
}

func (g *madeUp) executor(c *executor.Config) {
	c.Control = g.machine.control
	c.Handlers = g.disk.handlers()
	c.Shell = "/bin/sh"
}

func (*madeUp) folder() string               { return "/workspace" }
func (*madeUp) prepare(string, []byte) error { return nil }
func (*madeUp) settle()                      { synctest.Wait() }
func (*madeUp) slack() time.Duration         { return 0 }
func (g *madeUp) end(*judge)                 { g.machine.reap() }
