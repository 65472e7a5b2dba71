package simulation

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// judge hears of everything, keeps the trace, and checks what must hold.
type judge struct {
	bounds bounds
	begin  time.Time

	mu       sync.Mutex
	trace    []line
	failures []string
	asks     map[string]*asked
	conns    map[int64]*conn
	life     *life           // the executor's present one
	dialled  map[int64]*life // which one opened a connection: its hello may arrive later
	epochs   map[string]bool
	frames   int
	starts   int
}

type line struct {
	at   time.Duration
	text string
}

// life is one process of the executor.
type life struct {
	n        int
	epoch    string
	supports []string
}

// conn is what a connection may carry.
type conn struct {
	gen    wire.Gen
	listed map[string]bool
	acked  bool
	chunks map[string]int64 // next new streamSeq of each instruction
	result map[string]bool
}

// asked is one instruction, as seen from outside.
type asked struct {
	id      string
	ask     *Ask // nil until the dispatch has returned
	sent    time.Time
	calm    bool
	cancels int
	proc    *proc
	starts  int

	sizes     []int // bytes of each chunk
	confirmed int64 // bytes of chunks that the server acknowledged
	acked     int64 // the first streamSeq it did not
	result    []byte
	denied    bool     // the result says that it never started
	heard     [3]heard // by stream; 0 is of reads
	settled   *refserver.Settlement
}

// heard compares what is delivered with the true output.
type heard struct {
	text  io.Reader
	bytes int64
	wrong bool
}

// bounds are the executor's promises of how much it holds back.
type bounds struct{ lane, total int }

// How much more than the outbox a command's output may take: what the two streams
// gather, and the one chunk that a lane may always have.
const beside = 2*(128<<10) + wire.MaxChunkBytes

func newJudge(b bounds) *judge {
	return &judge{bounds: b, begin: time.Now(), asks: map[string]*asked{}, conns: map[int64]*conn{}, epochs: map[string]bool{}, life: &life{}, dialled: map[int64]*life{}}
}

// maxFailures keeps a broken run readable.
const maxFailures = 10

func (j *judge) fail(format string, args ...any) {
	if len(j.failures) < maxFailures {
		j.failures = append(j.failures, fmt.Sprintf("%v: ", time.Since(j.begin))+fmt.Sprintf(format, args...))
	}
}

// Fail records that something that must hold does not.
func (j *judge) Fail(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail(format, args...)
}

func (j *judge) note(format string, args ...any) {
	j.trace = append(j.trace, line{time.Since(j.begin), fmt.Sprintf(format, args...)})
}

// Note puts a line into the trace.
func (j *judge) Note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note(format, args...)
}

// lines is the trace in order of time. What falls on one nanosecond has no order
// of its own, so the text decides.
func (j *judge) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.SortStableFunc(j.trace, func(a, b line) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	out := make([]string, len(j.trace))
	for i, l := range j.trace {
		out[i] = fmt.Sprintf("%14v %s", l.at, l.text)
	}
	return out
}

func (j *judge) of(id string) *asked {
	a := j.asks[id]
	if a == nil {
		a = &asked{id: id}
		j.asks[id] = a
	}
	return a
}

// born is told of each life of the executor.
func (j *judge) born() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.life = &life{n: j.life.n + 1}
	j.note("executor %d starts", j.life.n)
}

// given is told of a dispatch, before its consumer can be called.
func (j *judge) given(id string, ask *Ask, calm bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.of(id)
	a.ask, a.calm = ask, calm
	j.note("ask %s %s", id, ask.Kind)
}

func (j *judge) cancelled(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.of(id).cancels++
	j.note("cancel %s", id)
}

// started is told by the machine of each command that starts.
func (j *judge) started(p *proc) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.of(p.id)
	a.proc = p
	a.starts++
	j.starts++
	if a.starts > 1 {
		j.fail("%s started %d times", p.id, a.starts)
	}
	if a.sent.IsZero() {
		j.fail("%s started, and the server never sent it", p.id)
	}
	j.note("start %s", p.id)
}

func (j *judge) exited(p *proc) { j.Note("exit %s %d", p.id, p.ExitCode()) }

// deliver checks output as it comes. It is the consumer's half of an instruction.
func (j *judge) deliver(ask *Ask, h *[3]heard, kind wire.ChunkKind, data []byte) {
	stream := map[wire.ChunkKind]int{wire.ChunkStdout: 1, wire.ChunkStderr: 2, wire.ChunkData: 0}[kind]
	e := &h[stream]
	if e.text == nil {
		e.text = ask.Program.text(max(stream, 1))
	}
	want := make([]byte, len(data))
	_, _ = io.ReadFull(e.text, want)
	if !bytes.Equal(want, data) && !e.wrong {
		e.wrong = true
		j.Fail("%s of %s differs from the true output within %d bytes after %d", kind, ask.Kind, len(data), e.bytes)
	}
	e.bytes += int64(len(data))
}

// hear is refserver.Config.Trace.
func (j *judge) hear(dir refserver.Direction, f refserver.Frame, raw []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frames++
	j.note("%s #%d %s %s %s gen=%s seq=%d size=%d", dir, f.Conn, f.Type, f.InstructionID, f.Kind, f.Gen, f.Seq, f.Bytes)
	if dir == refserver.FromServer {
		j.fromServer(f, raw)
	} else {
		j.fromDevice(f, raw)
	}
}

func (j *judge) fromServer(f refserver.Frame, raw []byte) {
	switch wire.ServerFrameType(f.Type) {
	case wire.TypeChallenge:
		j.dialled[f.Conn] = j.life
	case wire.TypeHelloAck:
		decoded, err := wire.DecodeServer(raw)
		ack, ok := decoded.(*wire.HelloAck)
		if err != nil || !ok {
			j.fail("the server's helloAck cannot be read: %v", err)
			return
		}
		c := &conn{gen: ack.Gen, listed: map[string]bool{}, chunks: map[string]int64{}, result: map[string]bool{}}
		for _, id := range ack.PendingInstructions {
			c.listed[id] = true
			c.chunks[id] = ack.ChunkWatermarks[id] + 1
			j.of(id).confirm(ack.ChunkWatermarks[id])
		}
		j.conns[f.Conn] = c
	case wire.TypeInstruction:
		if c := j.conns[f.Conn]; c != nil {
			c.listed[f.InstructionID] = true
		}
		a := j.of(f.InstructionID)
		if a.sent.IsZero() {
			a.sent = time.Now()
		}
	case wire.TypeChunkAck:
		j.of(f.InstructionID).confirm(f.Seq)
		if c := j.conns[f.Conn]; c != nil { // what it has need not be sent
			c.chunks[f.InstructionID] = max(c.chunks[f.InstructionID], f.Seq+1)
		}
	}
}

func (a *asked) confirm(upTo int64) {
	for a.acked <= upTo && a.acked < int64(len(a.sizes)) {
		a.confirmed += int64(a.sizes[a.acked])
		a.acked++
	}
}

func (j *judge) fromDevice(f refserver.Frame, raw []byte) {
	if f.Refused != "" {
		j.fail("a frame that no server takes: %s, %.200q", f.Refused, raw)
		return
	}
	if f.Type == string(wire.TypeHello) {
		j.hello(f.Conn, raw)
		return
	}
	c := j.conns[f.Conn]
	if c == nil {
		j.fail("%s before the handshake of connection %d", f.Type, f.Conn)
		return
	}
	if f.Gen != c.gen {
		j.fail("%s of generation %s on connection %d, which has %s", f.Type, f.Gen, f.Conn, c.gen)
	}
	if f.InstructionID != "" && !c.listed[f.InstructionID] {
		j.fail("%s of %s, which connection %d neither listed nor sent", f.Type, f.InstructionID, f.Conn)
	}
	if !c.acked && (f.Type == string(wire.TypeChunk) || f.Type == string(wire.TypeResult)) {
		j.fail("%s before generationAck", f.Type)
	}
	a := j.asks[f.InstructionID]
	switch wire.DeviceFrameType(f.Type) {
	case wire.TypeGenerationAck:
		if c.acked {
			j.fail("a second generationAck on connection %d", f.Conn)
		}
		c.acked = true
		j.fenced(f.Conn, c)
	case wire.TypeChunk:
		j.chunk(f, c, a)
	case wire.TypeResult:
		c.result[f.InstructionID] = true
		j.result(f, a, raw)
	}
}

func (j *judge) hello(n int64, raw []byte) {
	decoded, err := wire.DecodeDevice(raw, wire.MaxPreAuthFrameBytes)
	h, ok := decoded.(*wire.Hello)
	if err != nil || !ok {
		j.fail("a hello that cannot be read: %v", err)
		return
	}
	l := j.dialled[n]
	if l == nil {
		j.fail("a hello on connection %d before its challenge", n)
		return
	}
	if l.epoch == "" {
		if j.epochs[h.Epoch] {
			j.fail("executor %d has the epoch of an earlier one, %s", l.n, h.Epoch)
		}
		j.epochs[h.Epoch] = true
		l.epoch, l.supports = h.Epoch, h.Supports
	}
	if h.Epoch != l.epoch {
		j.fail("the epoch changed from %s to %s in one life", l.epoch, h.Epoch)
	}
	if !slices.Equal(h.Supports, l.supports) {
		j.fail("supports changed from %v to %v in one life", l.supports, h.Supports)
	}
}

// fencePatience is when a process that does not die may count as dead at the
// earliest: after the grace, and five seconds of a KILL that the kernel keeps pending.
const fencePatience = 7 * time.Second

// fenced looks whether anything runs that should not, now that generationAck came.
func (j *judge) fenced(n int64, c *conn) {
	for id, a := range j.asks {
		if a.proc == nil || a.proc.dead() || c.listed[id] {
			continue
		}
		if since := a.proc.wantedDeadSince(); since.IsZero() || time.Since(since) < fencePatience {
			j.fail("%s still runs at generationAck of connection %d, which does not list it", id, n)
		}
	}
}

func (j *judge) chunk(f refserver.Frame, c *conn, a *asked) {
	next := c.chunks[a.id]
	if f.Seq > next {
		j.fail("%s: chunk %d on connection %d, where %d is next", a.id, f.Seq, f.Conn, next)
	}
	if f.Seq >= next && c.result[a.id] {
		j.fail("%s: chunk %d after the result", a.id, f.Seq)
	}
	c.chunks[a.id] = max(next, f.Seq+1)
	if f.Seq == int64(len(a.sizes)) {
		a.sizes = append(a.sizes, f.Bytes)
	}
	if held := a.held(); held > int64(j.bounds.lane+beside) {
		j.fail("%s: %d bytes were read and are not acknowledged", a.id, held)
	}
}

// held is how much of a command's output the executor has read and the server not
// confirmed; at least as much is in memory.
func (a *asked) held() int64 {
	if a.proc == nil || a.proc.dead() {
		return 0
	}
	_, out := a.proc.out.counts()
	_, err := a.proc.err.counts()
	return out + err - a.confirmed
}

// result checks that there is one terminal, and that it is true.
func (j *judge) result(f refserver.Frame, a *asked, raw []byte) {
	same := bytes.Replace(raw, []byte(`"gen":"`+string(f.Gen)+`"`), nil, 1)
	if a.result != nil {
		if !bytes.Equal(a.result, same) {
			j.fail("%s: a second terminal %.300s after %.300s", a.id, same, a.result)
		}
		return
	}
	a.result = slices.Clone(same)
	decoded, err := wire.DecodeDevice(raw, wire.MaxFrameBytes)
	r, ok := decoded.(*wire.Result)
	if err != nil || !ok {
		j.fail("a result that cannot be read: %v", err)
		return
	}
	switch o := r.Outcome.(type) {
	case wire.CancelledOutcome:
		a.denied = o.State == wire.CancelNotStarted
	case wire.Failure:
		a.denied = o.Code == wire.CodeTargetUnavailable
	}
	if why := a.untrue(r.Outcome); why != "" {
		j.fail("%s: answered %s: %s", a.id, same, why)
	}
}

// untrue says what is wrong with an outcome, given what really happened.
func (a *asked) untrue(o wire.Outcome) string {
	alive := a.proc != nil && !a.proc.dead()
	switch o := o.(type) {
	case wire.ExecOutcome:
		if a.proc == nil {
			return ""
		}
		if !closed(a.proc.exited) || int64(a.proc.ExitCode()) != o.ExitCode {
			return fmt.Sprintf("the command's exit code is %d", a.proc.ExitCode())
		}
	case wire.CancelledOutcome:
		switch {
		case a.cancels == 0:
			return "nobody cancelled it"
		case alive:
			return "it still runs"
		case o.State == wire.CancelNotStarted && a.starts > 0:
			return "it had started"
		}
	case wire.Failure:
		switch o.Code {
		case wire.CodeTimeout:
			if alive {
				return "it still runs"
			}
			if a.ask != nil && time.Since(a.sent) < a.ask.Timeout {
				return fmt.Sprintf("only %v have passed", time.Since(a.sent))
			}
		case wire.CodeTargetUnavailable:
			if a.starts > 0 {
				return "it had started"
			}
		case wire.CodeAborted:
			if alive {
				return "it still runs"
			}
		case wire.CodeOutcomeUnknown:
		default:
			return "nothing that happens here is a reason for this"
		}
	}
	return ""
}

// look is called after every event of the schedule.
func (j *judge) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	var held, allowed int64 = 0, int64(j.bounds.total)
	for _, a := range j.asks {
		if h := a.held(); h > 0 {
			held += h
			allowed += beside
		}
	}
	if held > allowed {
		j.fail("%d bytes of output are held, at most %d may be", held, allowed)
	}
}

// settled checks how an instruction ended for its caller.
func (j *judge) settled(id string, how refserver.Settlement, h [3]heard, written func(path string) ([]byte, int)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.of(id)
	a.settled, a.heard = &how, h
	j.note("settled %s by %s %T stdout=%d stderr=%d data=%d", id, how.By, how.Outcome, h[1].bytes, h[2].bytes, h[0].bytes)
	if how.State == wire.StateTerminalNeverStarted && a.starts > 0 {
		j.fail("%s started, and the server says that it never did", id)
	}
	if a.calm && how.By != refserver.ByResult {
		j.fail("%s, which nothing disturbed, was settled by %s: %+v", id, how.By, how.Outcome)
	}
	switch how.Outcome.(type) {
	case wire.ExecOutcome:
		for stream := 1; stream <= 2; stream++ {
			want := a.said(stream)
			if a.proc == nil && stream == 1 && a.ask.Program.Orphan > 0 && h[1].bytes == want-wordBytes {
				continue // the orphan was ended before its last word
			}
			if h[stream].bytes != want {
				j.fail("%s succeeded with %d bytes on stream %d; the command said %d", id, h[stream].bytes, stream, want)
			}
		}
	case wire.ReadOutcome:
		if h[0].bytes != int64(a.ask.Size) {
			j.fail("%s succeeded with %d bytes of %d", id, h[0].bytes, a.ask.Size)
		}
	case wire.WriteOutcome:
		if content, times := written(how.Outcome.(wire.WriteOutcome).CanonicalPath); times != 1 || sha256.Sum256(content) != sha256.Sum256(a.ask.content()) {
			j.fail("%s succeeded; the file was written %d times and has %d bytes of %d", id, times, len(content), a.ask.Size)
		}
	default:
		if a.calm {
			j.fail("%s, which nothing disturbed, ended with %+v", id, how.Outcome)
		}
	}
}

// said is how much the command wrote on a stream.
func (a *asked) said(stream int) int64 {
	if a.proc == nil { // a real one
		return int64(a.ask.Program.total(stream))
	}
	p := a.proc.out
	if stream == 2 {
		p = a.proc.err
	}
	n, _ := p.counts()
	return n
}

// content is what a write writes.
func (a *Ask) content() []byte {
	b := make([]byte, a.Size)
	_, _ = io.ReadFull(a.Program.text(1), b)
	return b
}

// object judges what the reference server has to object to. Some of it is excused
// while the network is against us: then no answer can be in time.
func (j *judge) object(v refserver.Violation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch v.Reason {
	case refserver.CancelUnanswered, refserver.TimeoutUnanswered:
		if a := j.asks[v.InstructionID]; a == nil || !a.calm {
			return
		}
	}
	j.fail("the server objects: %v", v)
}
