package conformance

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// A server that is broken, or that was taken over, is no reason to crash, to hang,
// to fill the memory or to harm the machine. These are this executor's promises and
// not the guide's, so they are tests and no rows of the suite.
var hostileRows = []Row{
	{ID: "frames-at-the-limit", run: framesAtTheLimit},
	{ID: "frames-over-the-limit", run: framesOverTheLimit},
	{ID: "deep-json", run: deepJSON},
	{ID: "no-frames", run: noFrames},
	{ID: "duplicate-members", run: duplicateMembers},
	{ID: "huge-numbers", run: hugeNumbers},
	{ID: "lone-surrogates", run: loneSurrogates},
	{ID: "nul-bytes", run: nulBytes},
	{ID: "instruction-flood", run: instructionFlood},
	{ID: "same-id-at-once", run: sameID},
	{ID: "cancel-flood", run: cancelFlood},
	{ID: "payloads-for-nobody", run: payloadsForNobody},
	{ID: "payloads-that-lie", run: payloadsThatLie},
	{ID: "tiny-frames", run: tinyFrames},
	{ID: "never-acknowledging", run: neverAcknowledging},
	{ID: "garbage-after-hello", run: garbageAfterHello},
	{ID: "absurd-challenge", run: absurdChallenge},
	{ID: "absurd-helloAck", run: absurdHelloAck},
	{ID: "pending-flood", run: pendingFlood},
	{ID: "absurd-acks", run: absurdAcks},
}

func TestAHostileServerHarmsNothing(t *testing.T) {
	t.Parallel()
	cfg := oursConfig(t)
	base := realDir(t, t.TempDir())
	slots := make(chan struct{}, 4)
	for _, row := range hostileRows {
		row.Section, row.Promise = "hostile", "bounded memory, no crash, no hang, honest answers"
		t.Run(row.ID, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			if r := runRow(t.Context(), &cfg, row, base); r.Verdict == Fail {
				var b strings.Builder
				_ = NewPrinter(&b).Row(r)
				t.Error(b.String())
			}
		})
	}
}

// mostMemory is what an executor may hold under any attack. Its own bounds add up
// to less than half of it; the rest is the collector's.
const mostMemory = 320 << 20

// id is an instruction id that the server's books do not know.
func id(n int) string { return fmt.Sprintf("ins_%026d", n) }

// attack begins a row whose server does not object to what the row provokes.
func (c *Case) attack(cfg refserver.Config) {
	c.tolerate(refserver.UnknownIns, refserver.HeartbeatInflight, refserver.Unlisted, refserver.BeforeAck)
	c.begin(cfg)
}

// raw sends text with GEN replaced by the generation.
func (c *Case) raw(text string) {
	if !c.server.Inject(c.device, []byte(strings.ReplaceAll(text, "GEN", string(c.state().Gen)))) {
		c.stop("the connection is gone")
	}
}

// instruct sends an instruction, with args as JSON, behind the books' back.
func (c *Case) instruct(n int, kind wire.Kind, args, more string) {
	c.raw(fmt.Sprintf(`{"t":"instruction","gen":"GEN","instructionId":%q,"rootSessionId":"s","issuedSeq":%d,"kind":%q,"args":%s,"timeoutMs":60000%s}`,
		id(n), n, kind, args, more))
}

// resultsOf waits until an id was answered and returns all answers.
func (c *Case) resultsOf(n int) []message {
	wanted := about(id(n), fromDevice(wire.TypeResult))
	c.seen("an answer to "+id(n), wanted)
	return c.trace.messages(wanted)
}

// answered expects one answer with one of these words: an outcome's kind or code.
func (c *Case) answered(n int, what string, words ...string) {
	got := c.resultsOf(n)
	c.expect(len(got) == 1 && slices.Contains(words, got[0].Kind), "%s: %d answers, the first %s; expected %v", what, len(got), got[0].Kind, words)
}

// healthy expects the executor of before, on the same connection if it must be,
// with bounded memory and ready for work.
func (c *Case) healthy(sameConnection bool) {
	if c.exec.ended() {
		c.stop("the executor is gone: code %d", c.exec.code())
	}
	c.active()
	c.exited(c.do(run("exit 7")), 7)
	if sameConnection {
		c.expect(c.state().Connections == 1, "it reconnected")
	}
	c.light()
}

// light expects bounded memory.
func (c *Case) light() {
	if !canLook {
		return
	}
	m, err := memory(c.exec.pid())
	c.must(err)
	c.expect(m < mostMemory, "%d MiB resident", m>>20)
}

// padded is a frame of exactly size bytes.
func padded(head string, size int) string {
	return head + `,"x":"` + strings.Repeat("x", size-len(head)-len(`,"x":""}`)) + `"}`
}

func framesAtTheLimit(c *Case) {
	c.attack(refserver.Config{})
	gen := string(c.state().Gen)
	head := fmt.Sprintf(`{"t":"instruction","gen":%q,"instructionId":%q,"rootSessionId":"s","issuedSeq":1,"kind":"exec","args":{"command":"true"},"timeoutMs":9000`, gen, id(1))
	c.raw(padded(head, wire.MaxFrameBytes))
	c.answered(1, "a frame of 1 MiB", "exec")
	command := "exit 3 #" + strings.Repeat("x", wire.MaxFrameBytes-1000)
	c.instruct(2, wire.KindExec, `{"command":"`+command+`"}`, "")
	c.answered(2, "a command of nearly 1 MiB", "exec")
	c.healthy(true)
}

func framesOverTheLimit(c *Case) {
	c.attack(refserver.Config{})
	for _, size := range []int{4 << 20, 64 << 20} {
		n := c.state().Connections
		c.raw(padded(`{"t":"ping"`, size))
		c.again(n) // the transport's end of it (§2.4, stage 0)
		c.light()
	}
	c.healthy(false)
}

func deepJSON(c *Case) {
	c.attack(refserver.Config{})
	for _, open := range []string{"[", `{"a":`} {
		n := 900_000 / len(open)
		c.raw(`{"t":"ping","x":` + strings.Repeat(open, n))
		c.instruct(1, wire.KindExists, strings.Repeat(open, n/2)+"1"+strings.Repeat(map[string]string{"[": "]", `{"a":`: "}"}[open], n/2), "")
	}
	c.answered(1, "args as deep as a frame", "invalid")
	c.healthy(true)
}

func noFrames(c *Case) {
	c.attack(refserver.Config{})
	for _, text := range []string{"", " ", "null", "true", "7", `"text"`, "[]", "{}", "{", `{"t":7}`, `{"t":null}`, `{"t":""}`, `{"t":"PING"}`,
		"not json", "\xff\xfe\xfd", "\x00", `{"t":"ping"} {"t":"ping"}`, `{"t":"instruction"}`, `{"t":"bye"}`, `{"t":"bye","gen":"GEN"}x`,
		`{"t":"instruction","gen":"GEN"}`, `{"t":"cancel","gen":"GEN","instructionId":7}`, `{"t":"helloAck","gen":"GEN"}`, `{"t":"helloReject","code":"revoked"}`} {
		c.raw(text)
	}
	c.server.InjectBinary(c.device, []byte(`{"t":"bye","gen":"`+string(c.state().Gen)+`","reason":"no such reason"}`[:10]))
	c.healthy(true)
}

func duplicateMembers(c *Case) {
	c.attack(refserver.Config{})
	mark := c.path("mark")
	c.raw(fmt.Sprintf(`{"t":"ping","t":"instruction","gen":"4","gen":"GEN","instructionId":"ins_x","instructionId":%q,"rootSessionId":"s","issuedSeq":1,"kind":"remove","kind":"exec","args":{},"args":{"command":"false","command":%s},"timeoutMs":-1,"timeoutMs":9000}`,
		id(1), jsonText("echo x >> "+mark)))
	c.answered(1, "members named twice", "exec")
	c.expect(c.marks(mark) == 1, "it ran %d times", c.marks(mark))
	c.healthy(true)
}

func hugeNumbers(c *Case) {
	c.attack(refserver.Config{})
	mark := c.path("mark")
	command := fmt.Sprintf(`{"command":%s}`, jsonText("echo x >> "+mark))
	for n, number := range []string{"1e400", "-1e400", "9007199254740993", "1" + strings.Repeat("0", 100_000), "1.5", "1e-400", `"60000"`, "null"} {
		c.instruct(n, wire.KindExec, command, `,"timeoutMs":`+number)
		c.answered(n, "timeoutMs "+cut(number, 20), "invalid", "timeout") // 1e-400 is 0: it has run out
	}
	c.expect(c.marks(mark) == 0, "%d ran", c.marks(mark))
	c.instruct(100, wire.KindExec, `{"command":"exit 0"}`, `,"timeoutMs":9007199254740991`)
	c.answered(100, "the largest timeoutMs", "exec")
	c.instruct(101, wire.KindReadTextLines, fmt.Sprintf(`{"path":%s,"limit":9007199254740991,"offset":9007199254740991}`, jsonText(c.write(c.path("f"), "a\nb\n"))), "")
	c.answered(101, "the largest offset", "read")
	c.healthy(true)
}

func loneSurrogates(c *Case) {
	c.attack(refserver.Config{})
	c.instruct(1, wire.KindExec, `{"command":"printf '\ud800'; exit 0"}`, "")
	c.answered(1, "a lone surrogate in a command", "exec", "invalid")
	c.instruct(2, wire.KindWriteFile, fmt.Sprintf(`{"path":"%s/\udc00","contentLen":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`, c.place.workspace), "")
	c.raw(fmt.Sprintf(`{"t":"payload","gen":"GEN","instructionId":%q,"part":"begin","totalLen":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`, id(2)))
	c.raw(fmt.Sprintf(`{"t":"payload","gen":"GEN","instructionId":%q,"part":"commit","totalLen":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`, id(2)))
	c.answered(2, "a lone surrogate in a path", "write", "invalid")
	c.raw(`{"t":"cancel","gen":"GEN","instructionId":"\ud800\udfff\udfff"}`)
	c.healthy(true)
}

func nulBytes(c *Case) {
	c.attack(refserver.Config{})
	path := c.write(c.path("file"), "kept")
	n := 0
	for _, kind := range wire.Kinds() {
		if !c.declares(kind) || kind == wire.KindExec || kind == wire.KindExecStream {
			continue
		}
		n++
		args := fmt.Sprintf(`{"path":"%s\u0000.txt","prefix":"a\u0000b","contentLen":0,"sha256":"%064d"}`, path, 0)
		c.instruct(n, kind, args, "")
		if kind.TakesPayload() {
			c.raw(fmt.Sprintf(`{"t":"payload","gen":"GEN","instructionId":%q,"part":"begin","totalLen":0,"sha256":"%064d"}`, id(n), 0))
		}
		c.answered(n, string(kind)+" with a NUL", "invalid")
	}
	c.instruct(100, wire.KindExec, `{"command":"touch ran\u0000; true"}`, "")
	c.answered(100, "a command with a NUL", "invalid")
	c.instruct(101, wire.KindExec, `{"command":"touch ran"}`, `,"cwd":"/tmp\u0000"`)
	c.answered(101, "a cwd with a NUL", "invalid")
	c.instruct(102, wire.KindExec, `{"command":"touch ran"}`, `,"shellEnv":{"A":"x\u0000y"}`)
	c.answered(102, "a variable with a NUL", "invalid")
	c.instruct(103, wire.KindExec, `{"command":"touch ran"}`, `,"shellEnv":{"A=B":"x"}`)
	c.answered(103, "a variable named with =", "invalid")
	c.expect(!exists(c.path("ran")) && c.read(path) == "kept", "something was done all the same")
	c.healthy(true)
}

func instructionFlood(c *Case) {
	c.attack(refserver.Config{Heartbeat: time.Second})
	const many = 4000
	mark := c.path("mark")
	// The books do not know these ids, so the acknowledgements are given by hand:
	// without, results are given up past a bound.
	c.server.SetFaults(refserver.Faults{Incoming: func(_ string, f wire.DeviceFrame) refserver.Action {
		if r, ok := f.(*wire.Result); ok {
			c.server.Inject(c.device, fmt.Appendf(nil, `{"t":"resultAck","gen":%q,"instructionId":%q}`, r.Gen, r.InstructionID))
		}
		return refserver.Action{}
	}})
	for n := range many {
		c.instruct(n, wire.KindExec, fmt.Sprintf(`{"command":%s}`, jsonText("echo x >> "+mark)), "")
	}
	all := func() []message { return c.trace.messages(fromDevice(wire.TypeResult)) }
	c.expect(c.eventually(40*time.Second, func() bool { return len(all()) >= many }), "%d of %d were answered", len(all()), many)
	c.light()
	words := map[string]int{}
	for _, m := range all() {
		words[m.Kind]++
	}
	c.expect(words["exec"] == c.marks(mark), "%d are said to have run, %d did", words["exec"], c.marks(mark))
	c.expect(words["exec"] > 0 && words["exec"]+words["target_unavailable"] == many, "the answers are %v", words)
	c.healthy(true)
}

func sameID(c *Case) {
	c.attack(refserver.Config{})
	mark := c.path("mark")
	for range 200 {
		c.instruct(1, wire.KindExec, fmt.Sprintf(`{"command":%s}`, jsonText("echo x >> "+mark+"; sleep 0.5")), "")
	}
	c.instruct(1, wire.KindRemove, fmt.Sprintf(`{"path":%s}`, jsonText(mark)), "")
	c.answered(1, "one id 201 times", "exec")
	c.healthy(true)
	c.expect(c.marks(mark) == 1, "it ran %d times", c.marks(mark))
	c.answered(1, "one id 201 times, later", "exec")
}

func cancelFlood(c *Case) {
	c.attack(refserver.Config{})
	a := c.ask(run("echo $$ > pid; sleep 60"))
	pid := c.pidIn(c.path("pid"))
	for n := range 20_000 {
		c.raw(fmt.Sprintf(`{"t":"cancel","gen":"GEN","instructionId":%q}`, id(n)))
	}
	for range 1000 {
		c.raw(fmt.Sprintf(`{"t":"cancel","gen":"GEN","instructionId":%q}`, a.ID()))
	}
	how := a.settled()
	c.cancelled(how, wire.CancelKilled)
	c.dead("killed was said", pid)
	// An id that was cancelled before it came is new work all the same.
	c.instruct(3, wire.KindExec, `{"command":"exit 0"}`, "")
	c.answered(3, "an id cancelled before it came", "exec")
	c.healthy(true)
}

func payloadsForNobody(c *Case) {
	c.attack(refserver.Config{})
	data := strings.Repeat("QUFB", 256<<10/4)
	for n := range 600 {
		c.raw(fmt.Sprintf(`{"t":"payload","gen":"GEN","instructionId":%q,"part":"chunk","offset":%d,"dataB64":%q}`, id(n%7), n, data))
		if n%100 == 99 { // or the suite's own server would hold them all
			c.healthy(true)
		}
	}
}

func payloadsThatLie(c *Case) {
	c.attack(refserver.Config{})
	c.must(os.Mkdir(c.path("in"), 0o755))
	path := c.path("in", "target")
	empty := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for n, parts := range [][]string{
		{`"part":"begin","totalLen":9007199254740991,"sha256":"` + empty + `"`},
		{`"part":"begin","totalLen":-1,"sha256":"` + empty + `"`},
		{`"part":"commit","totalLen":5,"sha256":"` + empty + `"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"chunk","offset":-5,"dataB64":"QUFB"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"chunk","offset":9007199254740990,"dataB64":"QUFB"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"chunk","offset":0,"dataB64":"QUFBQUFBQUFB"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"chunk","offset":0,"dataB64":"QQ"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"begin","totalLen":5,"sha256":"` + empty + `"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"commit","totalLen":5,"sha256":"` + empty + `"`},
		{`"part":"begin","totalLen":5,"sha256":"` + empty + `"`, `"part":"chunk","offset":0,"dataB64":"QUFBQUE="`, `"part":"commit","totalLen":5,"sha256":"` + empty + `"`},
	} {
		c.instruct(n, wire.KindWriteFile, fmt.Sprintf(`{"path":%s,"contentLen":5,"sha256":%q}`, jsonText(path), empty), "")
		for _, p := range parts {
			c.raw(fmt.Sprintf(`{"t":"payload","gen":"GEN","instructionId":%q,%s}`, id(n), p))
		}
		c.answered(n, strings.Join(parts, ", "), "invalid")
		c.onlyIn(c.path("in"), false, "")
	}
	c.healthy(true)
}

func tinyFrames(c *Case) {
	c.attack(refserver.Config{Heartbeat: time.Second})
	beats := len(c.trace.messages(fromDevice(wire.TypeHeartbeat)))
	start := time.Now()
	for range 100_000 {
		c.server.Inject(c.device, []byte(`{"t":"ping"}`))
	}
	c.healthy(true)
	if due := int(time.Since(start)/time.Second) - 2; due > 0 {
		now := len(c.trace.messages(fromDevice(wire.TypeHeartbeat)))
		c.expect(now-beats >= due, "%d heartbeats in %v", now-beats, time.Since(start))
	}
}

func neverAcknowledging(c *Case) {
	c.attack(refserver.Config{MaxInflight: 16})
	c.server.SetFaults(refserver.Faults{Outgoing: refserver.Withhold(wire.TypeChunkAck, wire.TypeResultAck)})
	for range 3000 {
		c.ask(on(wire.KindExists, c.place.workspace))
	}
	for range 12 {
		c.ask(refserver.Dispatch{Kind: wire.KindExec, TimeoutMs: 6000, Args: wire.ExecArgs{Command: "exec head -c 1000000000 /dev/zero"}})
	}
	for range 10 {
		c.rest(500 * time.Millisecond)
		c.light()
	}
	c.server.SetFaults(refserver.Faults{})
	c.drop()
	c.healthy(false)
}

func garbageAfterHello(c *Case) {
	c.tolerate(refserver.UnknownIns, refserver.PreHello)
	c.open(refserver.Config{})
	c.enroll()
	garbage := []string{"", "null", "[]", "not json", `{"t":"helloAck"}`, `{"t":"helloAck","ok":true,"gen":"01","heartbeatIntervalMs":1,"maxInflight":1,"pendingInstructions":[],"chunkWatermarks":{}}`,
		`{"t":"helloReject","code":"no such code"}`, "\xff\xff", `{"t":"helloAck","ok":true,"gen":"1","heartbeatIntervalMs":0,"maxInflight":0,"pendingInstructions":[],"chunkWatermarks":{}}`}
	var next atomic.Int64
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		if _, ok := f.(*wire.HelloAck); !ok {
			return refserver.Action{}
		}
		n := int(next.Add(1)) - 1
		return refserver.Action{Replace: []byte(garbage[n%len(garbage)]), Cut: n%2 == 1}
	}})
	c.serve()
	c.expect(c.eventually(40*time.Second, func() bool { return next.Load() >= 4 }), "%d handshakes", next.Load())
	spaced(c, helloTimes(c.hellos()))
	c.server.SetFaults(refserver.Faults{})
	c.healthy(false)
}

func absurdChallenge(c *Case) {
	c.tolerate(refserver.HelloRejected, refserver.FrameTooLarge, refserver.HandshakeTooLate) // whatever is signed here cannot hold
	c.open(refserver.Config{HandshakeDeadline: time.Second})
	c.enroll()
	challenges := []string{`{"t":"challenge","nonce":"` + strings.Repeat("n", 900_000) + `","protocolVersion":1}`,
		padded(`{"t":"challenge","nonce":"n","protocolVersion":1`, 64<<20),
		`{"t":"challenge","nonce":"\ud800","protocolVersion":1e400}`, `{"t":"helloAck","ok":true,"gen":"1","heartbeatIntervalMs":1000,"maxInflight":1,"pendingInstructions":[],"chunkWatermarks":{}}`}
	var next atomic.Int64
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		if _, ok := f.(*wire.Challenge); !ok {
			return refserver.Action{}
		}
		n := int(next.Add(1)) - 1
		return refserver.Action{Replace: []byte(challenges[n%len(challenges)])}
	}})
	c.serve()
	c.expect(c.eventually(60*time.Second, func() bool { return next.Load() >= int64(len(challenges)) || c.exec.ended() }), "%d handshakes", next.Load())
	if c.exec.ended() {
		c.stop("the executor is gone: code %d", c.exec.code())
	}
	c.light()
	for _, h := range c.hellos() {
		c.expect(h.Size <= wire.MaxPreAuthFrameBytes, "a hello of %d bytes", h.Size)
	}
	c.server.SetFaults(refserver.Faults{})
	c.eventually(patience, func() bool { return c.state().Active }) // it waits between two dials
	c.healthy(false)
}

func absurdHelloAck(c *Case) {
	c.tolerate(refserver.UnknownIns, refserver.HeartbeatInflight)
	c.attack(refserver.Config{})
	for _, numbers := range []string{
		`"heartbeatIntervalMs":1,"maxInflight":9007199254740991`, `"heartbeatIntervalMs":9007199254740991,"maxInflight":1`,
	} {
		c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
			ack, ok := f.(*wire.HelloAck)
			if !ok {
				return refserver.Action{}
			}
			return refserver.Action{Replace: []byte(fmt.Sprintf(`{"t":"helloAck","ok":true,"gen":%q,%s,"pendingInstructions":[],"chunkWatermarks":{"ins_x":-1,"ins_y":9007199254740991}}`, ack.Gen, numbers))}
		}})
		c.drop()
		c.exited(c.do(run("sleep 1; exit 7")), 7)
		beats := c.trace.messages(onConn(c.conn(), fromDevice(wire.TypeHeartbeat)))
		c.expect(len(beats) < 60, "%s: %d heartbeats in a second", numbers, len(beats))
		c.light()
	}
	c.server.SetFaults(refserver.Faults{})
	c.drop()
	c.healthy(false)
}

func pendingFlood(c *Case) {
	c.attack(refserver.Config{})
	var ids []string
	const many = 5000
	for n := range many {
		ids = append(ids, `"`+id(n)+`"`)
	}
	c.server.SetFaults(refserver.Faults{Outgoing: func(_ string, f wire.ServerFrame) refserver.Action {
		ack, ok := f.(*wire.HelloAck)
		if !ok {
			return refserver.Action{}
		}
		return refserver.Action{Replace: []byte(fmt.Sprintf(`{"t":"helloAck","ok":true,"gen":%q,"heartbeatIntervalMs":15000,"maxInflight":4,"pendingInstructions":[%s],"chunkWatermarks":{}}`, ack.Gen, strings.Join(ids, ",")))}
	}})
	c.drop()
	c.server.SetFaults(refserver.Faults{})
	// Results that nobody acknowledges are held up to a bound, the oldest go first.
	// So whatever comes while the flood is answered may be given up with it.
	c.resultsOf(many - 1)
	c.healthy(false)
	for _, m := range c.trace.messages(fromDevice(wire.TypeResult)) {
		c.expect(m.Kind == "target_unavailable" || m.Kind == "exec", "an id that never came was answered %s", m.Kind)
	}
	// One of them comes now: it may have been answered already, so it must not run.
	c.instruct(5, wire.KindExec, fmt.Sprintf(`{"command":%s}`, jsonText("touch "+c.path("ran"))), "")
	c.healthy(false)
	c.expect(!exists(c.path("ran")), "an id that was answered ran")
}

func absurdAcks(c *Case) {
	c.attack(refserver.Config{})
	a := c.ask(run("i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.02; done"))
	for _, upTo := range []string{"9007199254740991", "-1", "-9007199254740991", "1e400", "1.5", "0", `"3"`, "null"} {
		c.raw(fmt.Sprintf(`{"t":"chunkAck","gen":"GEN","instructionId":%q,"upToStreamSeq":%s}`, a.ID(), upTo))
		c.raw(fmt.Sprintf(`{"t":"chunkAck","gen":"GEN","instructionId":%q,"upToStreamSeq":%s}`, id(1), upTo))
	}
	for range 50 {
		c.raw(fmt.Sprintf(`{"t":"resultAck","gen":"GEN","instructionId":%q}`, a.ID())) // before there is a result
		c.raw(fmt.Sprintf(`{"t":"resultAck","gen":"GEN","instructionId":%q}`, id(1)))
	}
	how := a.settled()
	c.exited(how, 0)
	c.expect(string(how.stdout) == counted(100), "of its output %d bytes came, not %d", len(how.stdout), len(counted(100)))
	c.healthy(true)
}
