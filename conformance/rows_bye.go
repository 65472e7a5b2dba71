package conformance

import (
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var byeRows = []Row{
	{ID: "R13-revoked", Section: "R13", Promise: "bye revoked: stop connecting and delete the private key", run: r13Revoked},
	{ID: "R13-draining", Section: "R13", Promise: "bye draining: reconnect with back-off, work goes on", run: r13Draining},
	{ID: "R13-superseded", Section: "R13", Promise: "bye superseded: stop, do not race the other", run: r13Superseded},
}

func r13Revoked(c *Case) {
	c.watchHTTP()
	c.begin(refserver.Config{})
	keys := c.keyFiles()
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.Revoke(c.device)
	a.settled()
	c.expect(c.eventually(15*time.Second, func() bool { return !alive(pid) }), "the command still runs 15 s after the revocation")
	c.forgotten(keys, 1)
}

func r13Draining(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run(counting(200)))
	c.pidIn(c.path("pid"))
	const byes = 4 // as jitter may take anything off a single wait
	var waited time.Duration
	for range byes {
		n, at := c.state().Connections, time.Now()
		c.server.Bye(c.device, wire.ByeDraining)
		c.again(n)
		hellos := c.hellos()
		waited += hellos[len(hellos)-1].at.Sub(at)
	}
	c.expect(waited >= byes*80*time.Millisecond, "after %d byes it was back within %v in all; expected a back-off before each (§1.4)", byes, waited.Round(time.Millisecond))
	how := a.settled()
	c.exited(how, 0)
	c.whole(how, counted(200), "")
}

func r13Superseded(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.Supersede(c.device)
	a.settled()
	c.expect(c.eventually(15*time.Second, func() bool { return !alive(pid) }), "15 s after bye superseded its command still runs, beside the other executor's")
	c.rest(4 * time.Second)
	c.expect(len(c.hellos()) == 1, "it connected again after bye superseded")
}
