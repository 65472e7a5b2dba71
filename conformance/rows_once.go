package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var onceRows = []Row{
	{ID: "R1-once", Section: "R1, §5.0", Promise: "an instruction runs at most once, also if its frame seems to come again", run: r1Once},
	{ID: "R1-same-text", Section: "R1, §5.4", Promise: "the same command under a new id is new work", run: r1SameText},
	{ID: "R1-every-answered", Section: "R1, §5.0", Promise: "every instruction is answered, once, also if they come at once", run: r1EveryAnswered},
}

// marks counts the lines of a file that commands append to.
func (c *Case) marks(path string) int { return strings.Count(c.read(path), "\n") }

func r1Once(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	var frame atomic.Value
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		if in, ok := f.(*wire.Instruction); ok {
			if b, err := wire.AppendServer(nil, in); err == nil {
				frame.Store(b)
			}
			return refserver.Action{Repeat: 2}
		}
		return refserver.Action{}
	}})
	a := c.ask(run("echo x >> " + quote(mark) + "; sleep 0.5"))
	c.exited(a.settled(), 0)
	b, _ := frame.Load().([]byte)
	c.server.Inject(c.device, b) // long finished
	c.server.SetFaults(refserver.Faults{})
	before := c.state().Gen
	c.drop() // and on the next connection, with its generation
	c.server.Inject(c.device, bytes.Replace(b, []byte(`"gen":"`+before+`"`), []byte(`"gen":"`+c.state().Gen+`"`), 1))
	c.exited(c.do(run("sleep 0.5")), 0)
	c.expect(c.marks(mark) == 1, "the command ran %d times; expected once", c.marks(mark))
	results := c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))
	c.expect(len(results) == 1, "%d results went out; expected 1", len(results))
}

func r1SameText(c *Case) {
	c.begin(refserver.Config{})
	mark := c.path("mark")
	for range 3 {
		a := c.do(run("echo x >> " + quote(mark) + "; wc -l < " + quote(mark)))
		c.exited(a, 0)
	}
	c.expect(c.marks(mark) == 3, "three instructions with the same command ran %d times; expected 3", c.marks(mark))
}

func r1EveryAnswered(c *Case) {
	c.begin(refserver.Config{MaxInflight: 16})
	var all []*asked
	for i := range 40 {
		switch i % 4 {
		case 0:
			all = append(all, c.ask(run(fmt.Sprintf("echo %d; exit %d", i, i))))
		case 1:
			all = append(all, c.ask(on(wire.KindExists, c.path("x"))))
		case 2:
			all = append(all, c.ask(put(wire.KindWriteFile, c.path(fmt.Sprint(i)), []byte("x"))))
		case 3:
			all = append(all, c.ask(on(wire.KindReadTextFile, c.path("none"))))
		}
	}
	for i, a := range all {
		how := a.settled()
		c.expect(how.By == refserver.ByResult, "instruction %d of 40 at once: expected an answer, got %s", i+1, tell(how))
		c.expect(len(c.trace.messages(about(a.ID(), fromDevice(wire.TypeResult)))) == 1, "instruction %d of 40 at once was answered more than once", i+1)
	}
}
