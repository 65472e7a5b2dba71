package outbox

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// The bounds that New puts where Config names none.
const (
	DefaultLaneBytes  = 1 << 20
	DefaultLaneChunks = 1024
	DefaultTotalBytes = 32 << 20
	DefaultHeld       = 512
)

// Config is what an Outbox depends on. Zero bounds mean the defaults.
type Config struct {
	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: no log. Gets ids, counts and sizes, never content

	LaneBytes  int // most bytes of chunks that one lane holds
	LaneChunks int // most chunks that one lane holds, its exit chunk apart
	TotalBytes int // most bytes of chunks over all lanes, and as many of results
	Held       int // most finished instructions that wait for acknowledgement
}

// Outbox holds the lanes of all instructions. Make one with New.
type Outbox struct {
	now   func() time.Time
	start time.Time // zero of the outbox's clock
	log   *slog.Logger
	ready chan struct{}

	laneBytes, laneChunks, totalBytes, held int

	// mu guards all below and every lane. Nothing waits while holding it: log
	// records are collected in notes and written after it is released.
	mu        sync.Mutex
	lanes     map[string]*Lane
	order     []*Lane  // by Open
	live      bool     // between Resume and Suspend
	gen       wire.Gen // stamped on what Next hands out
	deviceSeq int64
	turns     turns
	waiters   waiters
	free      buffers
	frame     wire.Chunk // scratch for Next
	stats     Stats
	notes     notes
}

// Stats is what an outbox holds now and has done so far.
type Stats struct {
	Lanes     int // instructions that are running or not yet acknowledged
	Results   int // of those, finished ones
	Chunks    int // chunks held
	Bytes     int // memory that the held chunks take
	PeakBytes int // the most it ever was
	Waiting   int // calls of Append that wait for room

	ResultBytes int // size of the held results on the wire

	ChunksSent, ChunksResent   int64
	ResultsSent, ResultsResent int64
	GivenUp                    int64 // instructions whose result was dropped before it was acknowledged
	Dropped                    int64 // instructions that the server did not list, or that were fenced
	OddAcks                    int64 // acknowledgements that made no sense
}

// New makes an empty outbox that is suspended.
func New(c Config) *Outbox {
	o := &Outbox{
		now:        c.Now,
		log:        c.Log,
		ready:      make(chan struct{}, 1),
		laneBytes:  orDefault(c.LaneBytes, DefaultLaneBytes),
		laneChunks: orDefault(c.LaneChunks, DefaultLaneChunks),
		totalBytes: orDefault(c.TotalBytes, DefaultTotalBytes),
		held:       orDefault(c.Held, DefaultHeld),
		lanes:      map[string]*Lane{},
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	o.start = o.now()
	return o
}

func orDefault(n, def int) int {
	if n <= 0 {
		return def
	}
	return n
}

// Open makes the lane of an instruction, before it may speak. An id has one lane
// for good: opening one that is in hand returns a lane that was dropped already.
func (o *Outbox) Open(id string) *Lane {
	o.mu.Lock()
	defer o.unlock()
	l := &Lane{o: o, id: id, patience: firstPatience, silence: firstSilence, moved: o.clock()}
	if _, ok := o.lanes[id]; ok {
		l.err = ErrDropped
		o.note(slog.LevelError, "instruction opened twice: second one is silent", id)
		return l
	}
	o.lanes[id] = l
	o.order = append(o.order, l)
	return l
}

// Drop forgets an instruction without another word: its chunks and result are
// gone, and its Append calls return ErrDropped. Unknown ids are fine.
func (o *Outbox) Drop(id string) {
	o.mu.Lock()
	defer o.unlock()
	if l, ok := o.lanes[id]; ok {
		o.stats.Dropped++
		o.remove(l, ErrDropped)
		o.grant()
	}
}

// Holding lists the instructions that have a lane, in the order they were opened:
// running ones and those whose result is not acknowledged.
func (o *Outbox) Holding() []string {
	o.mu.Lock()
	defer o.unlock()
	ids := make([]string, len(o.order))
	for i, l := range o.order {
		ids[i] = l.id
	}
	return ids
}

// Unacked counts the results not yet acknowledged.
func (o *Outbox) Unacked() int {
	o.mu.Lock()
	defer o.unlock()
	return o.stats.Results
}

// Stats returns the numbers of this moment.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.unlock()
	s := o.stats
	s.Lanes = len(o.order)
	s.Waiting = o.waiters.n
	return s
}

// clock is the time since the outbox was made. Where Now carries a monotonic
// reading, a jump of the wall clock does not move it.
func (o *Outbox) clock() time.Duration { return o.now().Sub(o.start) }

// remove takes a lane out and frees what it holds. Its Append calls, now and
// later, return err.
func (o *Outbox) remove(l *Lane, err error) {
	l.err = err
	l.release(l.end())
	if l.result != nil {
		o.stats.Results--
		o.stats.ResultBytes -= l.size
		l.result = nil
	}
	delete(o.lanes, l.id)
	if i := slices.Index(o.order, l); i >= 0 {
		o.order = slices.Delete(o.order, i, i+1)
	}
	o.turns.leave(l)
	o.refuse(l, err)
}
