package conformance

import (
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var connectRows = []Row{
	{ID: "upgrade-bare", Section: "§1.2, §6.2", Promise: "the upgrade is a plain GET of the path that was discovered and carries no credential", run: upgradeBare},
	{ID: "hello-first", Section: "§1.2, §2.2", Promise: "hello is the first frame on a socket, once, within 4096 bytes, and its signature holds", run: helloFirst},
	{ID: "hello-needs-challenge", Section: "§1.2, §1.3", Promise: "nothing is said before the challenge; a socket without one is given up and dialled again", run: helloNeedsChallenge},
	{ID: "hello-nonce", Section: "§1.3", Promise: "each socket's own nonce is signed, and the epoch is an upper-case ULID", run: helloNonce},
	{ID: "hello-root", Section: "§8", Promise: "hello states the workspace root that was enrolled", run: helloRoot},
	{ID: "upgrade-503", Section: "§1.2", Promise: "a refused upgrade is met with back-off, and the executor comes back", run: upgrade503},
	{ID: "reject-auth_failed", Section: "§1.4", Promise: "auth_failed: back off exponentially, never hammer, never end", run: rejectAuthFailed},
	{ID: "reject-revoked", Section: "§1.4", Promise: "revoked: stop connecting and delete the private key", run: rejectRevoked},
	{ID: "reject-version", Section: "§1.4", Promise: "protocol_version_unsupported: never try another version in a loop", run: rejectVersion},
	{ID: "reject-draining", Section: "§1.4", Promise: "draining: back off and come back", run: func(c *Case) { rejectFor(c, wire.RejectDraining) }},
	{ID: "reject-already_connected", Section: "§1.4", Promise: "already_connected: back off and come back, never end for it", run: func(c *Case) { rejectFor(c, wire.RejectAlreadyConnected) }},
	{ID: "gen-echo", Section: "§1.5, §2.2", Promise: "gen is echoed as the string it came as, also above 2^53", run: genEcho},
	{ID: "ack-once", Section: "§1.5, R10", Promise: "one generationAck per connection, before any chunk or result", run: ackOnce},
	{ID: "backoff", Section: "§1.4, §7", Promise: "dialling a server that is away is spaced out: about 1 s first, growing, with jitter, up to 60 s", run: backoff, limit: 2 * time.Minute},
	{ID: "ping-ignored", Section: "§7, §8", Promise: "a ping is accepted and ignored", run: pingIgnored},
	{ID: "wrong-gen-ignored", Section: "R9", Promise: "a frame of another generation is not acted on", run: wrongGenIgnored},
}

// hellos are the hello frames so far.
func (c *Case) hellos() []message { return c.trace.messages(fromDevice(wire.TypeHello)) }

func upgradeBare(c *Case) {
	calls := c.watchHTTP()
	c.begin(refserver.Config{})
	c.drop()
	for _, u := range calls.upgraded() {
		c.expect(u.method == http.MethodGet && u.uri == wire.WSPath, "the upgrade is %s %s", u.method, u.uri)
		for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
			c.expect(u.header.Get(name) == "", "the upgrade has a header %s", name)
		}
	}
}

func helloFirst(c *Case) {
	c.begin(refserver.Config{})
	c.drop()
	c.do(run("true"))
	first := map[int64]string{}
	count := map[int64]int{}
	for _, m := range c.trace.messages(fromDevice()) {
		if first[m.Conn] == "" {
			first[m.Conn] = m.Type
		}
		if m.Type == string(wire.TypeHello) {
			count[m.Conn]++
			c.expect(m.Size <= wire.MaxPreAuthFrameBytes, "a hello of %d bytes", m.Size)
		}
	}
	for n, typ := range first {
		c.expect(typ == string(wire.TypeHello), "connection %d began with %s", n, typ)
		c.expect(count[n] == 1, "%d hellos on connection %d", count[n], n)
	}
	for _, h := range c.hellos() {
		c.expect(h.hello.ProtocolVersion == wire.ProtocolVersion, "protocolVersion %d", h.hello.ProtocolVersion)
		c.expect(h.hello.Platform.OS != "" && h.hello.Platform.ExecutorVersion != "", "platform is not filled in")
	}
}

func helloNeedsChallenge(c *Case) {
	c.open(refserver.Config{HandshakeDeadline: 1500 * time.Millisecond})
	c.enroll()
	c.server.SetFaults(refserver.Faults{NoChallenge: true})
	c.serve()
	c.rest(4 * time.Second)
	c.expect(len(c.trace.messages(fromDevice())) == 0, "it spoke before the challenge")
	c.server.SetFaults(refserver.Faults{})
	c.active()
}

var epochForm = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)

func helloNonce(c *Case) {
	c.begin(refserver.Config{}) // the server verifies each signature over its nonce
	for range 3 {
		c.drop()
	}
	sums := map[string]bool{}
	for _, h := range c.hellos() {
		c.expect(epochForm.MatchString(h.hello.Epoch), "the epoch %q is not an upper-case ULID", h.hello.Epoch)
		sig, err := wire.DecodeBase64(nil, []byte(h.hello.SignatureB64))
		c.expect(err == nil && len(sig) == 64, "the signature has %d bytes: %v", len(sig), err)
		sums[hex.EncodeToString(sig)] = true
	}
	c.expect(len(sums) == len(c.hellos()), "%d sockets saw only %d signatures", len(c.hellos()), len(sums))
}

func helloRoot(c *Case) {
	c.begin(refserver.Config{})
	for _, h := range c.hellos() {
		c.expect(h.hello.WorkspaceRoot == c.place.workspace, "workspaceRoot is %q, enrolled was %q", h.hello.WorkspaceRoot, c.place.workspace)
	}
}

func upgrade503(c *Case) {
	c.begin(refserver.Config{})
	n := c.state().Connections
	c.server.Drain()
	c.gone()
	c.rest(3 * time.Second)
	c.expect(!c.exec.ended(), "it ended")
	c.server.Restart()
	c.again(n)
}

// spaced expects that dials are at least half a second apart.
func spaced(c *Case, hellos []message) {
	for i := 1; i < len(hellos); i++ {
		gap := hellos[i].at.Sub(hellos[i-1].at)
		c.expect(gap >= 400*time.Millisecond, "the next try came after %v", gap.Round(time.Millisecond))
	}
}

func rejectAuthFailed(c *Case) {
	c.open(refserver.Config{})
	c.enroll()
	c.server.SetFaults(refserver.Faults{RejectHello: wire.RejectAuthFailed})
	c.serve()
	c.rest(9 * time.Second)
	n := len(c.hellos())
	c.expect(n >= 2, "%d tries in 9 s; it may clear", n)
	c.expect(n <= 7, "%d tries in 9 s", n)
	spaced(c, c.hellos())
	c.server.SetFaults(refserver.Faults{})
	c.active()
}

func rejectFor(c *Case, code wire.HelloRejectCode) {
	c.open(refserver.Config{})
	c.enroll()
	c.server.SetFaults(refserver.Faults{RejectHello: code})
	c.serve()
	c.rest(4 * time.Second)
	n := len(c.hellos())
	c.expect(n >= 2 && n <= 6, "%d tries in 4 s", n)
	spaced(c, c.hellos())
	c.expect(!c.exec.ended(), "it ended")
	c.server.SetFaults(refserver.Faults{})
	c.active()
}

func rejectRevoked(c *Case) {
	c.watchHTTP()
	c.begin(refserver.Config{})
	keys := c.keyFiles()
	c.exec.signal(syscall.SIGTERM)
	c.expect(c.exec.within(patience), "it does not end on TERM")
	c.server.Revoke(c.device)
	n := len(c.hellos())
	c.serve()
	c.eventually(patience, func() bool { return len(c.hellos()) > n })
	c.expect(len(c.hellos()) == n+1, "%d hellos after the revocation, not 1", len(c.hellos())-n)
	c.forgotten(keys, n+1)
}

// forgotten expects that the executor has stopped for good: no more dials, and
// none of the key files left.
func (c *Case) forgotten(keys []string, hellos int) {
	if !c.eventually(patience, func() bool { return len(c.keysIn(keys)) == 0 }) {
		c.fail("the private key is still in %v", c.keysIn(keys))
	}
	c.rest(4 * time.Second)
	c.expect(len(c.hellos()) <= hellos, "it still dials")
	if c.exec.ended() { // a supervisor would start it again
		c.serve()
		c.rest(2 * time.Second)
		c.expect(len(c.hellos()) <= hellos, "started again, it dials")
	}
}

func rejectVersion(c *Case) {
	c.open(refserver.Config{})
	c.enroll()
	c.server.SetFaults(refserver.Faults{RejectHello: wire.RejectProtocolVersionUnsupported})
	c.serve()
	c.rest(5 * time.Second)
	for _, h := range c.hellos() {
		c.expect(h.hello.ProtocolVersion == wire.ProtocolVersion, "it tried version %d", h.hello.ProtocolVersion)
	}
	c.expect(len(c.hellos()) >= 1 && len(c.hellos()) <= 6, "%d tries in 5 s", len(c.hellos()))
	spaced(c, c.hellos())
}

func genEcho(c *Case) {
	c.begin(refserver.Config{FirstGeneration: 9007199254740993, Heartbeat: time.Second})
	c.exited(c.do(run("echo x")), 0)
	c.seen("a heartbeat", fromDevice(wire.TypeHeartbeat))
	for _, m := range c.trace.messages(fromDevice()) {
		c.expect(m.Type == string(wire.TypeHello) || m.Gen == "9007199254740993", "%s is stamped %q", m.Type, m.Gen)
	}
}

func ackOnce(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(run("i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.02; done"))
	c.rest(500 * time.Millisecond)
	c.drop()
	c.exited(a.settled(), 0)
	acks, spoke := map[int64]int{}, map[int64]bool{}
	for _, m := range c.trace.messages(fromDevice()) {
		switch m.Type {
		case string(wire.TypeGenerationAck):
			acks[m.Conn]++
			c.expect(!spoke[m.Conn], "generationAck came after output")
		case string(wire.TypeChunk), string(wire.TypeResult):
			spoke[m.Conn] = true
			c.expect(acks[m.Conn] > 0, "a %s before generationAck", m.Type)
		}
	}
	for n, count := range acks {
		c.expect(count == 1, "%d generationAcks on connection %d", count, n)
	}
}

func backoff(c *Case) {
	c.open(refserver.Config{})
	c.enroll()
	c.server.SetFaults(refserver.Faults{RejectHello: wire.RejectDraining})
	c.serve()
	c.rest(22 * time.Second)
	var gaps []time.Duration
	hellos := c.hellos()
	for i := 1; i < len(hellos); i++ {
		gaps = append(gaps, hellos[i].at.Sub(hellos[i-1].at))
	}
	c.expect(len(gaps) >= 3 && len(gaps) <= 12, "%d tries in 22 s", len(gaps)+1)
	if len(gaps) < 3 {
		return
	}
	c.expect(gaps[0] >= 400*time.Millisecond && gaps[0] < 3*time.Second, "the second try came after %v", gaps[0])
	c.expect(slices.Max(gaps[2:]) > gaps[0]*3/2, "the waits do not grow: %v", gaps)
	c.expect(!regular(gaps), "the waits have no jitter: %v", gaps)
}

// regular reports whether all waits but the last are the one before by one factor,
// to within what a dial takes.
func regular(gaps []time.Duration) bool {
	factor := float64(gaps[1]) / float64(gaps[0])
	for i := 2; i < len(gaps); i++ {
		due := time.Duration(float64(gaps[i-1]) * factor)
		if (gaps[i] - due).Abs() > 30*time.Millisecond+due/50 {
			return false
		}
	}
	return true
}

func pingIgnored(c *Case) {
	c.begin(refserver.Config{})
	before := len(c.trace.messages(fromDevice(wire.TypeResult, wire.TypeChunk, wire.TypeGoodbye)))
	for range 5 {
		c.server.Inject(c.device, []byte(`{"t":"ping"}`))
	}
	c.exited(c.do(run("exit 3")), 3)
	c.expect(c.state().Connections == 1, "it reconnected")
	c.expect(before == 0, "it spoke unasked")
}

func wrongGenIgnored(c *Case) {
	c.begin(refserver.Config{FirstGeneration: 5})
	mark := c.path("mark")
	c.inject(&wire.Instruction{Gen: "4", InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", RootSessionID: "s", IssuedSeq: 1,
		Kind: wire.KindExec, Args: []byte(`{"command":` + jsonText("echo ran >> "+mark) + `}`), TimeoutMs: 10_000})
	a := c.ask(run("sleep 1; echo done"))
	c.inject(&wire.Cancel{Gen: "4", InstructionID: a.ID()})
	c.inject(&wire.Bye{Gen: "4", Reason: wire.ByeRevoked})
	c.exited(a.settled(), 0)
	c.expect(c.read(mark) == "", "an instruction of generation 4 ran in generation 5")
	c.expect(c.state().Connections == 1 && !c.exec.ended(), "a bye of generation 4 was heeded in generation 5")
	c.expect(len(c.trace.messages(about("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", fromDevice()))) == 0, "an instruction of generation 4 was answered")
}
