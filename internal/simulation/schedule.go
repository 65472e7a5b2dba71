package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Schedule is all that happens in one run, besides what the executor does. The same
// seed and ground make the same schedule.
type Schedule struct {
	Seed   uint64
	Config Config
	Events []Event
}

// Config is what holds for a whole run.
type Config struct {
	Heartbeat       time.Duration
	ReconnectGrace  time.Duration
	Lease           time.Duration
	KeepLease       bool
	MaxInflight     int
	FirstGeneration uint64
	PayloadPart     int
	LaneBytes       int // 0: the outbox's default; likewise below
	LaneChunks      int
	TotalBytes      int
}

// Event is one thing that happens.
type Event struct {
	At  time.Duration
	Do  Action
	For time.Duration `json:",omitempty"` // how long it lasts
	N   int64         `json:",omitempty"` // see Action
	Way int64         `json:",omitempty"` // 1: towards the server, 2: towards the device, 3: both
	Ask *Ask          `json:",omitempty"`
}

// Action is what an event does.
type Action string

// The actions. Those of the network concern the newest connection.
const (
	DoAsk Action = "ask" // dispatch Event.Ask, once the device is active

	Cut     Action = "cut"     // reset once N more bytes went one Way
	Freeze  Action = "freeze"  // swallow everything, for good
	Stall   Action = "stall"   // deliver nothing For a while
	Slow    Action = "slow"    // N ns a byte, For a while, on all connections
	Delay   Action = "delay"   // N ns of latency, For a while, on all connections
	Refuse  Action = "refuse"  // no connection can be made For a while
	Deafen  Action = "deafen"  // dials are not even answered
	Restart Action = "restart" // a new replica, with empty memory
	Drain   Action = "drain"   // the replica drains, and is replaced after For

	Bye       Action = "bye"        // N even: draining, odd: a reason nobody knows
	Reject    Action = "reject"     // each hello, with code N
	NoHello   Action = "no_hello"   // hellos are not answered
	NoWelcome Action = "no_welcome" // no challenge is sent
	LateHello Action = "late_hello" // hellos are answered after N ns
	Repeat    Action = "repeat"     // frames are sent twice
	Withhold  Action = "withhold"   // N: 1 chunkAcks, 2 resultAcks, 3 both are not sent
	Inject    Action = "inject"     // a frame that must not be acted on, the Nth of a list

	// Of the server's memory.
	Settle  Action = "settle"  // chunkAcks are not sent For a while, and then all is settled behind the executor's back
	Unlist  Action = "unlist"  // another replica, which knows of nothing, has the connections For a while
	Dismiss Action = "dismiss" // a final bye, odd N: revoked, even: superseded; started again after For

	// Age is a long time in which nothing that is said arrives: For a while as the
	// world sees it, and N ns by the executor's clock, which may give up what it said.
	Age Action = "age"

	Clock Action = "clock" // the wall clock jumps by N ns
	Sleep Action = "sleep" // the machine announces sleep, and wakes after For
	Crash Action = "crash" // the executor is killed, and started again after For
	Stop  Action = "stop"  // the executor leaves in good order, and is started again after For
)

// Ask is one instruction that the server gives.
type Ask struct {
	Kind      wire.Kind
	Program   Program
	Size      int                     `json:",omitempty"` // of what is read or written
	Timeout   time.Duration           // timeoutMs
	Cancel    []time.Duration         `json:",omitempty"` // when it is cancelled, after it was asked for
	Sip       time.Duration           `json:",omitempty"` // how long the consumer takes over a chunk
	Hang      time.Duration           `json:",omitempty"` // how long what is read does not come from the disk, whatever else happens
	Straggler bool                    `json:",omitempty"` // sent even after a goodbye
	outcome   func(wire.Outcome) bool // whether it is the right one; nil: success is
}

func (s Schedule) String() string {
	var b strings.Builder
	c, _ := json.Marshal(s.Config)
	fmt.Fprintf(&b, "seed %d %s\n", s.Seed, c)
	for i, e := range s.Events {
		j, _ := json.Marshal(e)
		fmt.Fprintf(&b, "%3d %12v %s\n", i, e.At, j)
	}
	return b.String()
}

// Keep is the schedule with the numbered events alone.
func (s Schedule) Keep(numbers []int) Schedule {
	kept := s
	kept.Events = nil
	for i, e := range s.Events {
		if slices.Contains(numbers, i) {
			kept.Events = append(kept.Events, e)
		}
	}
	return kept
}

// Pace is how long a schedule lasts and how much happens in it.
type Pace struct {
	Length time.Duration
	Asks   int
	Faults int
	Flood  int // bytes, the most that one command says
	// Patience scales all durations that faults and commands take.
	Patience float64
}

// The paces of the two grounds.
var (
	VirtualPace = Pace{Length: 40 * time.Second, Asks: 9, Faults: 10, Flood: 80 << 10, Patience: 1}
	RealPace    = Pace{Length: 6 * time.Second, Asks: 10, Faults: 6, Flood: 4 << 20, Patience: 0.15}
)

// Generate makes the schedule of a seed.
func Generate(seed uint64, p Pace) Schedule {
	g := &generator{rand.New(rand.NewPCG(seed, 3)), p}
	s := Schedule{Seed: seed, Config: g.config()}
	for range p.Asks/2 + g.IntN(p.Asks) {
		s.Events = append(s.Events, Event{At: g.within(p.Length), Do: DoAsk, Ask: g.ask()})
	}
	for range p.Faults/2 + g.IntN(p.Faults) {
		s.Events = append(s.Events, g.trouble()...)
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return int(a.At - b.At) })
	return s
}

type generator struct {
	*rand.Rand
	pace Pace
}

func (g *generator) within(d time.Duration) time.Duration {
	return 1 + time.Duration(g.Int64N(int64(d)))
}

// about is a duration between a tenth of d and d, at the pace's patience.
func (g *generator) about(d time.Duration) time.Duration {
	d = time.Duration(float64(d) * g.pace.Patience)
	return d/10 + g.within(d*9/10)
}

func (g *generator) one(in int) bool { return g.IntN(in) == 0 }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) config() Config {
	c := Config{
		// Never a multiple of a second, at which other things happen.
		Heartbeat:       time.Duration(1001+2*g.IntN(2500)) * time.Millisecond,
		ReconnectGrace:  pick(g, 15*time.Second, 40*time.Second, 2*time.Minute),
		Lease:           pick(g, 10*time.Second, 45*time.Second),
		KeepLease:       g.one(4),
		MaxInflight:     1 + g.IntN(5),
		FirstGeneration: pick(g, uint64(1), 7, 1<<53+1, 1<<63),
		PayloadPart:     pick(g, 1000, 64<<10, 256<<10),
		LaneBytes:       pick(g, 0, 64<<10, 200<<10),
		LaneChunks:      pick(g, 0, 3, 70),
		TotalBytes:      pick(g, 0, 300<<10),
	}
	// A silent connection is given up before its lease is.
	c.Lease = max(c.Lease, 4*c.Heartbeat)
	if g.pace.Patience < 1 {
		c.Heartbeat, c.Lease, c.KeepLease = time.Duration(301+g.IntN(700))*time.Millisecond, 4*time.Second, false
	}
	return c
}

func (g *generator) ask() *Ask {
	a := &Ask{Kind: pick(g, wire.KindExec, wire.KindExecStream, wire.KindExec, wire.KindExecStream, wire.KindWriteFile, wire.KindReadBinaryFile),
		Timeout: time.Duration(30+g.IntN(30)) * time.Second, Straggler: g.one(10)}
	a.Program.Seed = g.Uint64() >> 12
	switch a.Kind {
	case wire.KindWriteFile, wire.KindReadBinaryFile:
		a.Size = g.size()
		if a.Kind == wire.KindReadBinaryFile && g.pace.Patience == 1 && g.one(12) {
			a.Hang = g.about(pick(g, 2*time.Second, 20*time.Second))
			a.Timeout = g.about(10 * time.Second).Round(time.Millisecond)
		}
	default:
		a.Program = g.program(a.Program.Seed)
		if g.one(6) {
			a.Timeout = g.about(20 * time.Second).Round(time.Millisecond)
		}
	}
	if a.Program.Loop || g.one(4) {
		a.Cancel = append(a.Cancel, g.moment())
		if g.one(3) {
			a.Cancel = append(a.Cancel, g.moment())
		}
	}
	if g.one(6) {
		a.Sip = g.about(200 * time.Millisecond)
	}
	if a.Program.Steps != nil && g.one(60) {
		// More than may be held back, and a consumer that is slow to take it.
		a.Program.Steps = []Step{{Stream: 1, Bytes: 1 << 20}}
		a.Program.Loop, a.Sip = false, g.about(400*time.Millisecond)
	}
	return a
}

// moment is soon, quite soon, or later.
func (g *generator) moment() time.Duration {
	return g.within(pick(g, 3*time.Millisecond, 100*time.Millisecond, g.about(20*time.Second)))
}

func (g *generator) size() int {
	return g.IntN(pick(g, 1, 100, 5000, 20<<10, g.pace.Flood))
}

func (g *generator) program(seed uint64) Program {
	p := Program{Seed: seed, Exit: pick(g, 0, 0, 1, 255), Term: pick(g, Dies, Dies, Speaks, Ignores, Lingers)}
	if g.one(25) {
		p.Term = Undead
	}
	for range g.IntN(8) {
		p.Steps = append(p.Steps, Step{After: g.about(pick(g, time.Millisecond, 100*time.Millisecond, 5*time.Second)), Stream: 1 + g.IntN(4)/3, Bytes: g.size()})
	}
	if g.one(15) {
		p.Steps = g.chatter()
	}
	if len(p.Steps) > 0 && g.one(8) {
		p.Loop = true
		p.Steps[0].After = max(p.Steps[0].After, 300*time.Millisecond)
	}
	if g.one(6) {
		p.Orphan = g.about(pick(g, 600*time.Millisecond, 30*time.Second))
	}
	return p
}

// chatter is more pieces of output than may be under way at once.
func (g *generator) chatter() []Step {
	steps := make([]Step, 70+g.IntN(50))
	for i := range steps {
		steps[i] = Step{After: 6*time.Millisecond + g.within(6*time.Millisecond), Stream: 1, Bytes: 1 + g.IntN(40)}
	}
	return steps
}

// trouble is a fault, and what has to go on meanwhile for it to matter.
func (g *generator) trouble() []Event {
	if g.pace.Patience < 1 || !g.one(7) { // what follows takes minutes of an executor's patience
		return []Event{g.fault()}
	}
	e := Event{At: g.within(g.pace.Length), Do: pick(g, Settle, Unlist, Dismiss, Age), For: g.about(4 * time.Second)}
	ask := g.talker()
	switch e.Do {
	case Unlist: // and takes its time to end, so that the fence may be cut off
		ask.Program.Term = pick(g, Dies, Ignores, Lingers, Lingers)
		ask.Program.Steps = []Step{{After: 300*time.Millisecond + g.within(time.Second), Stream: 1, Bytes: g.size()}}
		ask.Timeout = time.Minute
	case Dismiss:
		e.N = g.Int64N(4)
	case Age: // and comes to its end meanwhile
		e.N = int64(11*time.Minute + g.within(9*time.Minute))
		ask.Program = Program{Seed: ask.Program.Seed, Steps: []Step{{After: time.Second + g.within(e.For), Stream: 1, Bytes: g.size()}}}
		ask.Timeout = time.Minute
	}
	before := Event{At: max(1, e.At-g.within(time.Second)), Do: DoAsk, Ask: ask}
	return []Event{before, e}
}

// talker never stops talking before its timeout.
func (g *generator) talker() *Ask {
	seed := g.Uint64() >> 12
	return &Ask{Kind: wire.KindExecStream, Timeout: g.about(4 * time.Second).Round(time.Millisecond),
		Program: Program{Seed: seed, Loop: true, Steps: g.chatter(), Term: pick(g, Dies, Ignores)}}
}

func (g *generator) fault() Event {
	e := Event{At: g.within(g.pace.Length), Way: 1 + int64(g.IntN(2)), For: g.about(12 * time.Second)}
	e.Do = pick(g, Cut, Cut, Cut, Cut, Cut, Freeze, Freeze, Stall, Stall, Slow, Delay, Refuse, Refuse, Deafen,
		Restart, Restart, Drain, Bye, Reject, NoHello, NoWelcome, LateHello, Repeat, Repeat, Repeat, Withhold, Withhold,
		Inject, Inject, Clock, Sleep, Crash, Stop)
	switch e.Do {
	case Cut:
		e.N, e.For = g.Int64N(pick(g, 2, 200, 5000, int64(g.pace.Flood))), 0
	case Freeze:
		e.Way, e.For = 1+int64(g.IntN(3)), 0
	case Stall:
		e.Way = 1 + int64(g.IntN(3))
	case Slow:
		e.N = pick(g, int64(1000), 5000, 20_000) // down to 50 kB/s
	case Delay, LateHello:
		e.N = int64(g.about(3 * time.Second))
	case Restart:
		e.For = 0
	case Bye, Inject:
		e.N, e.For = g.Int64N(100), 0
	case Reject:
		e.N = g.Int64N(3)
	case Withhold:
		e.N = 1 + g.Int64N(3)
		e.For *= 2
	case Repeat:
		e.For *= 2
	case Clock:
		e.N, e.For = int64(g.about(4*time.Minute))*pick(g, int64(1), -1), 0
	}
	return e
}
