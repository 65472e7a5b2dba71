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
	c.expect(c.eventually(15*time.Second, func() bool { return !alive(pid) }), "the command still runs after the revocation")
	c.forgotten(keys, 1)
}

func r13Draining(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run(counting(150)))
	c.pidIn(c.path("pid"))
	at := time.Now()
	c.server.Bye(c.device, wire.ByeDraining)
	c.again(1)
	hellos := c.hellos()
	gap := hellos[len(hellos)-1].at.Sub(at)
	c.expect(gap >= 300*time.Millisecond, "it was back after %v: no back-off", gap)
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == counted(150), "of its output %d bytes came", len(how.stdout))
}

func r13Superseded(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	c.server.Supersede(c.device)
	a.settled()
	c.expect(c.eventually(15*time.Second, func() bool { return !alive(pid) }), "its command still runs, beside the other executor's")
	c.rest(4 * time.Second)
	c.expect(len(c.hellos()) == 1, "it dialled again")
}
