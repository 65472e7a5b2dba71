package conformance

import (
	"encoding/hex"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

var connectRows = []Row{
	{ID: "upgrade-bare", Section: "§1.2, §6.2", Promise: "the upgrade is a plain GET of the path that was discovered and carries no credential", run: upgradeBare},
	{ID: "hello-first", Section: "§1.2, §2.2", Promise: "hello is the first frame on a socket, once, within 4096 bytes, and its signature holds", run: helloFirst},
	{ID: "hello-needs-challenge", Section: "§1.2, §1.3", Promise: "nothing is said before the challenge; after a socket that brought none, or no answer to hello, comes another", run: helloNeedsChallenge},
	{ID: "hello-nonce", Section: "§1.3", Promise: "each socket's own nonce is signed, and the epoch is an upper-case ULID", run: helloNonce},
	{ID: "hello-root", Section: "§8, §1.1", Promise: "hello states the workspace root that was enrolled, and fits with any of up to 1024 bytes", run: helloRoot},
	{ID: "upgrade-503", Section: "§1.2", Promise: "a refused upgrade is met with back-off, and the executor comes back", run: upgrade503},
	{ID: "reject-auth_failed", Section: "§1.4", Promise: "auth_failed: back off exponentially, never hammer, never end", run: rejectAuthFailed},
	{ID: "reject-revoked", Section: "§1.4", Promise: "revoked: stop connecting and delete the private key", run: rejectRevoked},
	{ID: "reject-version", Section: "§1.4", Promise: "protocol_version_unsupported: never try another version in a loop", run: rejectVersion},
	{ID: "reject-draining", Section: "§1.4", Promise: "draining: back off and come back", run: func(c *Case) { rejectFor(c, wire.RejectDraining) }},
	{ID: "reject-already_connected", Section: "§1.4", Promise: "already_connected: back off and come back, never end for it", run: func(c *Case) { rejectFor(c, wire.RejectAlreadyConnected) }},
	{ID: "gen-echo", Section: "§1.5, §2.2", Promise: "gen is echoed as the string it came as, also above 2^53", run: genEcho},
	{ID: "ack-once", Section: "§1.5, R10", Promise: "one generationAck per connection, before any chunk or result", run: ackOnce},
	{ID: "backoff", Section: "§1.4, §7", Promise: "tries that are rejected are spaced out: about 1 s first, growing, with jitter", run: backoff, limit: 2 * time.Minute},
	{ID: "server-away", Section: "§1.4, R4", Promise: "a server that cannot be reached is no reason to end, nor to hammer it; work goes on until it is back", run: serverAway},
	{ID: "server-drops", Section: "§1.4, §7", Promise: "a server that drops each connection as soon as it is ready is not hammered", run: serverDrops},
	{ID: "ping-ignored", Section: "§7, §8", Promise: "a ping is accepted and ignored", run: pingIgnored},
	{ID: "wrong-gen-ignored", Section: "R9", Promise: "what comes on a socket that was superseded is not acted on", run: wrongGenIgnored},
}

// hellos are the hello frames so far.
func (c *Case) hellos() []message { return c.trace.messages(fromDevice(wire.TypeHello)) }

func upgradeBare(c *Case) {
	calls := c.watchHTTP()
	c.begin(refserver.Config{})
	c.drop()
	for _, u := range calls.upgraded() {
		c.expect(u.method == http.MethodGet && u.uri == wire.WSPath, "the upgrade is %s %s; expected GET "+wire.WSPath+", as GET /v1/capabilities names it", u.method, u.uri)
		for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
			c.expect(u.header.Get(name) == "", "the upgrade has a header %s; whoever connects proves who it is in hello, and nowhere else (§1.2)", name)
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
			c.expect(m.Size <= wire.MaxPreAuthFrameBytes, "a hello of %d bytes; 4096 are the most before the handshake is over", m.Size)
		}
	}
	for n, typ := range first {
		c.expect(typ == string(wire.TypeHello), "the first frame on connection %d was %s, not hello", n, typ)
		c.expect(count[n] == 1, "%d hellos on connection %d; expected 1", count[n], n)
	}
	for _, h := range c.hellos() {
		c.expect(h.hello.ProtocolVersion == wire.ProtocolVersion, "protocolVersion is %d, expected 1", h.hello.ProtocolVersion)
		c.expect(h.hello.Platform.OS != "" && h.hello.Platform.ExecutorVersion != "", "hello's platform.os or platform.executorVersion is empty")
	}
}

func helloNeedsChallenge(c *Case) {
	calls := c.watchHTTP()
	c.open(refserver.Config{HandshakeDeadline: 700 * time.Millisecond})
	c.enroll()
	c.server.SetFaults(refserver.Faults{NoChallenge: true})
	c.serve()
	if !c.eventually(patience, func() bool { return len(calls.upgraded()) >= 2 }) {
		c.stop("after a socket without a challenge it did not dial again within %v", patience)
	}
	c.rest(500 * time.Millisecond)
	c.expect(len(c.trace.messages(fromDevice())) == 0, "it sent a frame before the challenge had come")
	c.server.SetFaults(refserver.Faults{})
	c.active()
	c.exited(c.do(run("true")), 0) // a good connection, so that the back-off starts over
	n := len(c.hellos())
	c.server.SetFaults(refserver.Faults{NoHelloAnswer: true})
	c.server.Drop(c.device)
	if !c.eventually(patience, func() bool { return len(c.hellos()) >= n+2 }) {
		c.stop("after a socket on which hello got no answer it did not dial again within %v", patience)
	}
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
		c.expect(err == nil && len(sig) == 64, "signatureB64 decodes to %d bytes (%v); expected the 64 of an Ed25519 signature, in standard base64", len(sig), err)
		sums[hex.EncodeToString(sig)] = true
	}
	c.expect(len(sums) == len(c.hellos()), "%d hellos had only %d different signatures: each has to sign its own socket's nonce", len(c.hellos()), len(sums))
}

func helloRoot(c *Case) {
	const odd, most = "a 'b' \"c\" d\\e $f ü 漢 𝄞 ", 1024
	for room := most - len(c.place.workspace); room > len("/")+len(odd); room = most - len(c.place.workspace) {
		n := min(room-len("/"), 240) / len(odd) // names have bounds of their own
		c.place.workspace += "/" + strings.TrimSpace(strings.Repeat(odd, n))
	}
	c.must(os.MkdirAll(c.place.workspace, 0o700))
	c.begin(refserver.Config{}) // refuses a hello above 4096 bytes
	for _, h := range c.hellos() {
		c.expect(h.hello.WorkspaceRoot == c.place.workspace, "workspaceRoot is %q, enrolled was %q", h.hello.WorkspaceRoot, c.place.workspace)
	}
	a := c.do(run("pwd -P"))
	c.expect(string(a.stdout) == c.place.workspace+"\n", "a command without cwd: pwd says %q, expected the workspace root", a.stdout)
}

func upgrade503(c *Case) {
	calls := c.watchHTTP()
	c.begin(refserver.Config{})
	n, dialled := c.state().Connections, len(calls.upgraded())
	c.server.Drain()
	c.gone()
	c.rest(4 * time.Second)
	tries := timesOf(calls.upgraded()[dialled:], func(u upgrade) time.Time { return u.at })
	c.expect(len(tries) <= 6, "%d tries in 4 s with upgrades refused; expected at most 6", len(tries))
	spaced(c, tries)
	c.expect(!c.exec.ended(), "the executor ended for a refused upgrade; expected is that it comes back")
	c.server.Restart()
	c.again(n)
}

// timesOf are the times of things.
func timesOf[T any](things []T, at func(T) time.Time) []time.Time {
	var times []time.Time
	for _, t := range things {
		times = append(times, at(t))
	}
	return times
}

func helloTimes(hellos []message) []time.Time {
	return timesOf(hellos, func(m message) time.Time { return m.at })
}

// spaced expects waits between tries. One of them may be short, as jitter may take
// anything off it, but not all of three.
func spaced(c *Case, tries []time.Time) {
	for i := 3; i < len(tries); i++ {
		took := tries[i].Sub(tries[i-3])
		c.expect(took >= 600*time.Millisecond, "three more tries came within %v; expected about a second before the first, and longer then (§1.4)", took.Round(time.Millisecond))
	}
}

// rejected has every hello rejected for a while from the first on, which comes when
// the executor has started, and returns the tries.
func (c *Case) rejected(code wire.HelloRejectCode, d time.Duration) []message {
	c.open(refserver.Config{})
	c.enroll()
	c.server.SetFaults(refserver.Faults{RejectHello: code})
	c.serve()
	c.seen("a hello", fromDevice(wire.TypeHello))
	c.rest(d)
	tries := c.hellos()
	spaced(c, helloTimes(tries))
	return tries
}

func rejectAuthFailed(c *Case) {
	n := len(c.rejected(wire.RejectAuthFailed, 9*time.Second))
	c.expect(n >= 2, "%d tries in 9 s with auth_failed; expected more, as it may clear", n)
	c.expect(n <= 7, "%d tries in 9 s with auth_failed; expected at most 7: back off exponentially", n)
	c.server.SetFaults(refserver.Faults{})
	c.active()
}

func rejectFor(c *Case, code wire.HelloRejectCode) {
	n := len(c.rejected(code, 4*time.Second))
	c.expect(n >= 2 && n <= 6, "%d tries in 4 s with %s; expected 2 to 6", n, code)
	c.expect(!c.exec.ended(), "the executor ended for %s", code)
	c.server.SetFaults(refserver.Faults{})
	c.active()
}

func rejectRevoked(c *Case) {
	c.watchHTTP()
	c.begin(refserver.Config{})
	keys := c.keyFiles()
	c.exec.signal(syscall.SIGTERM)
	c.expect(c.exec.within(patience), "the executor does not end within 20 s of SIGTERM")
	c.server.Revoke(c.device)
	n := len(c.hellos())
	c.serve()
	c.eventually(patience, func() bool { return len(c.hellos()) > n })
	c.expect(len(c.hellos()) == n+1, "%d hellos after the revocation, expected 1: the one that was rejected", len(c.hellos())-n)
	c.forgotten(keys, n+1)
}

// forgotten expects that the executor has stopped for good: no more dials, and
// none of the key files left.
func (c *Case) forgotten(keys []string, hellos int) {
	if !c.eventually(patience, func() bool { return len(c.keysIn(keys)) == 0 }) {
		c.fail("the private key is still in %s", strings.Join(c.keysIn(keys), ", "))
	}
	c.rest(4 * time.Second)
	c.expect(len(c.hellos()) <= hellos, "it still connects; revoked is final (§1.4, R13)")
	if c.exec.ended() { // a supervisor would start it again
		c.serve()
		c.rest(2 * time.Second)
		c.expect(len(c.hellos()) <= hellos, "started again, it connects; revoked is final (§1.4, R13)")
	}
}

func rejectVersion(c *Case) {
	tries := c.rejected(wire.RejectProtocolVersionUnsupported, 5*time.Second)
	for _, h := range tries {
		c.expect(h.hello.ProtocolVersion == wire.ProtocolVersion, "it tried protocolVersion %d after 1 was rejected", h.hello.ProtocolVersion)
	}
	c.expect(len(tries) <= 6, "%d tries in 5 s with protocol_version_unsupported; expected at most 6", len(tries))
}

func genEcho(c *Case) {
	c.begin(refserver.Config{FirstGeneration: 9007199254740993, Heartbeat: time.Second})
	c.exited(c.do(run("echo x")), 0)
	c.seen("a heartbeat", fromDevice(wire.TypeHeartbeat))
	for _, m := range c.trace.messages(fromDevice()) {
		c.expect(m.Type == string(wire.TypeHello) || m.Gen == "9007199254740993", "%s has gen %q; expected \"9007199254740993\", the string that helloAck had", m.Type, m.Gen)
	}
}

func ackOnce(c *Case) {
	c.begin(refserver.Config{})
	a := c.ask(live(counting(100)))
	c.seen("output", about(a.ID(), fromDevice(wire.TypeChunk)))
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
			c.expect(acks[m.Conn] > 0, "a %s went out before generationAck", m.Type)
		}
	}
	for n, count := range acks {
		c.expect(count == 1, "%d generationAcks on connection %d; expected 1", count, n)
	}
}

func backoff(c *Case) {
	hellos := c.rejected(wire.RejectDraining, 22*time.Second)
	var gaps []time.Duration
	for i := 1; i < len(hellos); i++ {
		gaps = append(gaps, hellos[i].at.Sub(hellos[i-1].at))
	}
	c.expect(len(gaps) >= 3 && len(gaps) <= 12, "%d tries in 22 s with every hello rejected; expected 4 to 13", len(gaps)+1)
	if len(gaps) < 3 {
		return
	}
	c.expect(gaps[0] < 3*time.Second, "the second try came after %v; expected about 1 s, less than 3", gaps[0])
	c.expect(slices.Max(gaps[2:]) > gaps[0]*3/2, "the waits between tries do not grow: %v", gaps)
	c.expect(!regular(gaps), "the waits between tries have no jitter: %v", gaps)
}

// regular reports whether each wait is the one before by one factor, or as long where
// they have come to their ceiling, to within what a dial takes.
func regular(gaps []time.Duration) bool {
	factor := float64(gaps[1]) / float64(gaps[0])
	is := func(gap, due time.Duration) bool { return (gap - due).Abs() <= 30*time.Millisecond+due/50 }
	for i := 2; i < len(gaps); i++ {
		if before := gaps[i-1]; !is(gaps[i], time.Duration(float64(before)*factor)) && !is(gaps[i], before) {
			return false
		}
	}
	return true
}

func serverAway(c *Case) {
	calls := c.watchHTTP()
	c.begin(refserver.Config{})
	a := c.ask(run(counting(200)))
	c.pidIn(c.path("pid"))
	n := c.state().Connections
	tried := func() int {
		return len(calls.upgraded()) + len(calls.to(capabilitiesPath))
	}
	before := tried()
	calls.down.Store(true)
	c.server.Drop(c.device)
	c.gone()
	c.rest(3 * time.Second)
	if c.exec.ended() {
		c.stop("the executor ended, with code %d, as the server could not be reached", c.exec.code())
	}
	c.expect(tried()-before <= 12, "%d requests in 3 s to a server that does not answer; expected at most 12", tried()-before)
	calls.down.Store(false)
	c.again(n)
	how := a.settled()
	c.exited(how, 0)
	c.whole(how, counted(200), "")
}

func serverDrops(c *Case) {
	c.begin(refserver.Config{})
	n := c.state().Connections
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		_, ready := f.(*wire.GenerationAck)
		return refserver.Action{Cut: ready}
	}})
	c.server.Drop(c.device)
	c.rest(5 * time.Second)
	made := c.state().Connections - n
	c.expect(made >= 1 && made <= 20, "%d connections in 5 s to a server that drops each; expected 1 to 20", made)
	c.expect(!c.exec.ended(), "the executor ended, as connections were dropped")
}

func pingIgnored(c *Case) {
	c.begin(refserver.Config{})
	before := len(c.trace.messages(fromDevice(wire.TypeResult, wire.TypeChunk, wire.TypeGoodbye)))
	for range 5 {
		c.server.Inject(c.device, []byte(`{"t":"ping"}`))
	}
	c.exited(c.do(run("sleep 1; exit 3")), 3) // a connection may be left with a last word
	c.expect(c.state().Connections == 1, "pings cost the connection")
	c.expect(before == 0, "it sent a chunk, a result or a goodbye before anything was asked")
}

// wrongGenIgnored has the executor make a new connection while the server still holds
// the one before, and say its last on that one. An executor that has closed it hears
// nothing, and does right.
func wrongGenIgnored(c *Case) {
	c.begin(refserver.Config{FirstGeneration: 5})
	a := c.ask(run("sleep 8; echo done"))
	mark := c.path("mark")
	for _, what := range []string{"bye", "cancel", "instruction"} {
		old, n := c.state().Gen, c.state().Connections
		// As the new socket takes over, the server says bye superseded on the old one;
		// that it does, or something else in its place.
		c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			var late wire.ServerFrame
			switch bye, ok := f.(*wire.Bye); {
			case !ok || bye.Reason != wire.ByeSuperseded:
			case what == "cancel":
				late = &wire.Cancel{Gen: old, InstructionID: a.ID()}
			case what == "instruction":
				late = &wire.Instruction{Gen: old, InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", RootSessionID: "s", IssuedSeq: 1,
					Kind: wire.KindExec, Args: []byte(`{"command":` + jsonText("echo ran >> "+quote(mark)) + `}`), TimeoutMs: 10_000}
			}
			if late == nil {
				return refserver.Action{}
			}
			b, err := wire.AppendServer(nil, late)
			return refserver.Action{Replace: b, Drop: err != nil}
		}})
		c.inject(&wire.Bye{Gen: old, Reason: wire.ByeDraining}) // and then the socket stays
		if !c.eventually(3*time.Second, func() bool { s := c.state(); return s.Active && s.Connections > n }) {
			c.server.Drop(c.device) // it waits for the server to close
			c.again(n)
		}
		c.do(on(wire.KindExists, mark)) // a good connection, so that the back-off starts over
	}
	c.server.SetFaults(refserver.Faults{})
	c.rest(500 * time.Millisecond)
	if c.exec.ended() {
		c.stop("it ended, with code %d, for a bye superseded that came on the socket before its present one (R9)", c.exec.code())
	}
	c.exited(a.settled(), 0)
	c.expect(c.read(mark) == "", "an instruction that came on the socket before the present one ran (R9)")
	c.expect(len(c.trace.messages(about("ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", fromDevice()))) == 0, "an instruction that came on the socket before the present one was answered (R9)")
}
