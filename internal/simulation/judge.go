package simulation

import (
	"fmt"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/refserver"
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
	newest   int64     // connection
	calm     time.Time // since when nothing goes wrong any more; zero: it does
	frames   int
	starts   int
}

// life is one process of the executor.
type life struct {
	n        int
	epoch    string
	supports []string
	leaving  time.Time // when it was told to leave
	phase    link.Phase
	farewell farewell
	conns    []int64 // that it was challenged on
}

// asked is one instruction, as seen from outside.
type asked struct {
	id      string
	ask     *Ask // nil until the dispatch has returned
	sent    time.Time
	sentOn  int64 // the connection
	calm    bool
	cancels int
	proc    *proc
	starts  int

	sizes     []int // bytes of each chunk
	confirmed int64 // bytes of chunks that the server acknowledged
	acked     int64 // the first streamSeq it did not
	result    []byte
	forgiven  bool     // the executor may have given it up, or the server said that it had
	owed      bool     // all is calm and it is listed: it has to be answered
	denied    bool     // the result says that it never started
	heard     [3]heard // by stream; 0 is of reads
	settled   *refserver.Settlement
}

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

// dials is told of each connection of the present life.
func (j *judge) dials(conn int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dialled[conn] = j.life
}

// enters is told of each change of the link's state.
func (j *judge) enters(s link.State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.life.phase = s.Phase
	j.note("state %s %s", s.Phase, s.Cause)
}

// dialling is told of each attempt to connect.
func (j *judge) dialling() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f := j.life.farewell; f.plain {
		j.fail("the executor dials again after a bye %s", f.reason)
	}
}

// dismisses is told right before a final bye, given what the server has of the device.
// It reports whether there is anyone who may hear it.
func (j *judge) dismisses(f farewell, s refserver.DeviceState) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !s.Connected || s.Epoch != j.life.epoch {
		return false
	}
	if j.life.phase != link.Fencing && j.life.phase != link.Active {
		f.plain = false // it has left that connection, or is about to
	}
	for _, n := range j.life.conns {
		// A hello of its own that came late might be what superseded it.
		if c := j.conns[n]; c == nil || !c.acked {
			f.plain = false
		}
	}
	j.life.farewell = f
	return true
}

func (j *judge) farewell() farewell {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.life.farewell
}

func (j *judge) plainly() bool { return j.farewell().plain }

// ages is told when more time passes for the executor than it waits for an
// acknowledgement.
func (j *judge) ages() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.asks {
		a.forgiven = a.forgiven || !a.sent.IsZero() && a.settled == nil
	}
}

// calms is told when nothing goes wrong any more, and the executor is active.
func (j *judge) calms() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calm = time.Now()
	for id, a := range j.asks {
		c := j.conns[j.newest]
		a.owed = a.settled == nil && c != nil && c.listed[id] && !j.stranded(a)
	}
}

// stranded reports whether no more of the output may be sent before something of it is
// acknowledged. With all faults over it is where acknowledgements were swallowed on a
// connection that is still in use: no executor can tell that from a slow server.
func (j *judge) stranded(a *asked) bool {
	chunks, bytes := int64(len(a.sizes))-a.acked, 0
	for _, n := range a.sizes[a.acked:] {
		bytes += n
	}
	return chunks >= min(int64(j.bounds.chunks), reorderEntries) || 2*bytes >= min(j.bounds.lane, reorderBytes)
}

// leaves is told right before the executor is.
func (j *judge) leaves() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.life.leaving = time.Now()
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

// end says how an instruction was settled, and how much was heard on its stdout; all
// zero: not yet.
func (j *judge) end(ask *Ask) (how refserver.Settlement, heard int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.asks {
		if a.ask == ask && a.settled != nil {
			return *a.settled, a.heard[1].bytes
		}
	}
	return how, 0
}

// moved is how much a made-up command could write to its stdout.
func (j *judge) moved(ask *Ask) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.asks {
		if a.ask == ask {
			return a.said(1)
		}
	}
	return 0
}

// hasHeard reports whether any output of an instruction reached the server.
func (j *judge) hasHeard(ask *Ask) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.asks {
		if a.ask == ask && len(a.sizes) > 0 {
			return true
		}
	}
	return false
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
