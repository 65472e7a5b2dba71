package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// Bounds small enough to be hit all the time.
const (
	simLaneBytes  = 2 * wire.MaxChunkBytes
	simLaneChunks = 100
	simTotalBytes = 5 * wire.MaxChunkBytes
)

// The bounds of a server's reorder buffer (§4).
const (
	reorderEntries = 64
	reorderBytes   = 2 << 20
)

func TestAnyScheduleKeepsTheRules(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		if err := simulate(t, seed, 250); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add(uint64(1), uint16(100))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		if err := simulate(t, seed, int(steps)%1000); err != nil {
			t.Fatal(err)
		}
	})
}

// simulate drives an outbox between commands that speak and a model of a server,
// over a connection that loses what is under way whenever it breaks. The seed
// decides everything. It returns the first rule that was broken.
func simulate(t *testing.T, seed uint64, steps int) (err error) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{
			rnd:    rand.New(rand.NewPCG(seed, 42)),
			outbox: outbox.New(outbox.Config{LaneBytes: simLaneBytes, LaneChunks: simLaneChunks, TotalBytes: simTotalBytes}),
			books:  map[string]*account{},
			stop:   make(chan struct{}),
		}
		s.connect()
		for range steps {
			if s.step(); s.first() != nil {
				break
			}
		}
		if s.first() == nil {
			s.settleAll()
		}
		close(s.stop)
		for _, id := range s.outbox.Holding() {
			s.outbox.Drop(id)
		}
		s.commands.Wait()
		if st := s.outbox.Stats(); s.first() == nil && (st.Bytes != 0 || st.Chunks != 0 || st.Results != 0 || st.Waiting != 0) {
			s.breaks("", "an empty outbox holds %+v", st)
		}
		err = s.broken
	})
	return err
}

// account is what the server's books, and the truth, say of one instruction.
type account struct {
	id      string
	order   int
	settled bool // the server closed it, for whatever reason
	fenced  bool // the device was told so by a list without it

	truth    map[wire.ChunkKind]*bytes.Buffer // what its command has said
	finished bool                             // its command has ended
	outcome  wire.Outcome

	watermark int64
	seen      map[int64]*wire.Chunk // by streamSeq: what was handed out first
	reorder   map[int64]*wire.Chunk
	delivered map[wire.ChunkKind]int // bytes
	exits     int
	deviceSeq int64 // 0: no result was handed out
	results   int   // hand-outs of the result

	// On this connection.
	floor     int64 // watermark it began with
	next      int64 // highest streamSeq handed out, plus one
	resultOut bool
}

// settle is written once only: commands that were dropped read it.
func (a *account) settle() {
	if !a.settled {
		a.settled = true
	}
}

type simulation struct {
	rnd      *rand.Rand
	outbox   *outbox.Outbox
	books    map[string]*account
	accounts []*account
	gen      int
	live     bool
	perfect  bool               // the server loses nothing any more
	wire     []wire.DeviceFrame // under way
	acks     []func()
	commands sync.WaitGroup
	stop     chan struct{}

	mu     sync.Mutex
	broken error
}

func (s *simulation) breaks(id, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = fmt.Errorf("%s: %s", id, fmt.Sprintf(format, args...))
	}
}

// first is the first rule that was broken.
func (s *simulation) first() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

func (s *simulation) chance(percent int) bool { return s.rnd.IntN(100) < percent }

func (s *simulation) step() {
	switch n := s.rnd.IntN(100); {
	case n < 8:
		if s.live && len(s.accounts) < 40 {
			s.dispatch()
		}
	case n < 40:
		s.send(1 + s.rnd.IntN(40))
	case n < 65:
		s.receive(1 + s.rnd.IntN(40))
	case n < 82:
		s.takeAcks(1 + s.rnd.IntN(40))
	case n < 90:
		time.Sleep(time.Duration(s.rnd.IntN(12_000)) * time.Millisecond)
		s.outbox.Tick(time.Now())
	case n < 93:
		s.oddAck()
	case n < 95:
		s.writeOff()
	case s.live:
		s.disconnect()
	default:
		s.connect()
	}
	synctest.Wait()
	s.checkBounds()
}

// dispatch has the server send a new instruction and its command begin to speak.
func (s *simulation) dispatch() {
	a := &account{
		id: fmt.Sprintf("ins_%d", len(s.accounts)), order: len(s.accounts), watermark: -1, floor: -1,
		truth: map[wire.ChunkKind]*bytes.Buffer{}, delivered: map[wire.ChunkKind]int{},
		seen: map[int64]*wire.Chunk{}, reorder: map[int64]*wire.Chunk{},
	}
	s.accounts = append(s.accounts, a)
	s.books[a.id] = a
	lane := s.outbox.Open(a.id)
	var kinds []wire.ChunkKind
	switch s.rnd.IntN(4) {
	case 0:
		kinds = []wire.ChunkKind{wire.ChunkData}
		a.outcome = wire.ReadOutcome{}
	case 1:
		kinds = []wire.ChunkKind{wire.ChunkStdout, wire.ChunkStderr}
		a.outcome = wire.Failf(wire.CodeTimeout, "stopped")
	default:
		kinds = []wire.ChunkKind{wire.ChunkStdout, wire.ChunkStderr}
		a.outcome = wire.ExecOutcome{ExitCode: s.rnd.Int64N(256)}
	}
	var voices sync.WaitGroup
	for _, k := range kinds {
		a.truth[k] = new(bytes.Buffer)
	}
	for _, k := range kinds {
		seed, count, large := s.rnd.Uint64(), s.rnd.IntN(150), s.chance(15)
		if large {
			count /= 15
		}
		voices.Go(func() { s.speak(a, lane, k, seed, count, large) })
	}
	s.commands.Go(func() {
		voices.Wait()
		s.mu.Lock()
		a.finished = true
		s.mu.Unlock()
		lane.Finish(a.outcome)
	})
}

func (s *simulation) speak(a *account, lane *outbox.Lane, kind wire.ChunkKind, seed uint64, count int, large bool) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range count {
		n := 1 + rnd.IntN(200)
		if large {
			n = 1 + rnd.IntN(wire.MaxChunkBytes)
		}
		data := bytes.Repeat([]byte{byte(rnd.Uint32()), byte(rnd.Uint32()), byte(rnd.Uint32())}, n/3+1)[:n]
		s.mu.Lock()
		a.truth[kind].Write(data) // before, for it may be delivered before Append returns
		s.mu.Unlock()
		switch err := lane.Append(context.Background(), kind, data); {
		case err == nil:
		case errors.Is(err, outbox.ErrDropped):
			if !a.settled {
				s.breaks(a.id, "dropped though the server holds it")
			}
			return
		default:
			s.breaks(a.id, "Append: %v", err)
			return
		}
		for i := range data { // Append has copied it
			data[i] = 0xEE
		}
		if rnd.IntN(3) == 0 {
			select {
			case <-time.After(time.Duration(rnd.IntN(2000)) * time.Millisecond):
			case <-s.stop:
				return
			}
		}
	}
}

// send moves frames from the outbox into the connection, and checks each as it
// comes: what the device says must be right even if it never arrives.
func (s *simulation) send(n int) {
	for range n {
		frame, ok := s.outbox.Next(nil)
		if !ok {
			return
		}
		if !s.live {
			s.breaks("", "a frame without a connection: %.200s", frame)
			return
		}
		f, err := wire.DecodeDevice(frame, wire.MaxFrameBytes)
		if err != nil {
			s.breaks("", "a server would refuse %.200s: %v", frame, err)
			return
		}
		s.checkSaid(f)
		if s.first() != nil {
			return
		}
		s.wire = append(s.wire, f)
	}
}

func (s *simulation) checkSaid(f wire.DeviceFrame) {
	var gen wire.Gen
	var id string
	switch f := f.(type) {
	case *wire.Chunk:
		gen, id = f.Gen, f.InstructionID
	case *wire.Result:
		gen, id = f.Gen, f.InstructionID
	}
	a := s.books[id]
	if gen != wire.Gen(fmt.Sprint(s.gen)) {
		s.breaks(id, "R9: stamped %s in generation %d", gen, s.gen)
	}
	if a == nil || a.fenced {
		s.breaks(id, "R2: a frame for an instruction that was not listed")
		return
	}
	switch f := f.(type) {
	case *wire.Chunk:
		if was, ok := a.seen[f.StreamSeq]; ok && (was.Kind != f.Kind || !bytes.Equal(was.Data, f.Data) || was.ExitCode != f.ExitCode) {
			s.breaks(id, "R7: chunk %d is not what it was", f.StreamSeq)
		}
		if _, ok := a.seen[f.StreamSeq]; !ok {
			a.seen[f.StreamSeq] = f
		}
		if f.StreamSeq > max(a.next, a.watermark+1) { // the server may have had more in its reorder buffer
			s.breaks(id, "R8: chunk %d after %d", f.StreamSeq, a.next-1)
		}
		if f.StreamSeq <= a.floor {
			s.breaks(id, "R2: chunk %d at or below the watermark %d of the connection", f.StreamSeq, a.floor)
		}
		if a.resultOut && f.StreamSeq == a.next {
			s.breaks(id, "§4: new chunk %d after the result", f.StreamSeq)
		}
		a.next = max(a.next, f.StreamSeq+1)
	case *wire.Result:
		a.resultOut = true
		a.results++
		if a.results > 10 {
			s.breaks(id, "R5: result sent %d times", a.results)
		}
		if !s.ended(a) {
			s.breaks(id, "result of a command that has not ended")
		}
		if a.deviceSeq != 0 && f.DeviceSeq != a.deviceSeq {
			s.breaks(id, "R6: deviceSeq was %d, now %d", a.deviceSeq, f.DeviceSeq)
		}
		for _, other := range s.accounts {
			if other != a && other.deviceSeq == f.DeviceSeq {
				s.breaks(id, "R6: deviceSeq %d belongs to %s", f.DeviceSeq, other.id)
			}
		}
		a.deviceSeq = f.DeviceSeq
		if f.Outcome != a.outcome {
			s.breaks(id, "outcome %v, was %v", f.Outcome, a.outcome)
		}
	}
}

// receive has the server take frames from the connection. It loses one now and then
// (as it would one that it finds malformed), and its acknowledgements get lost too.
func (s *simulation) receive(n int) {
	for ; n > 0 && len(s.wire) > 0; n-- {
		f := s.wire[0]
		s.wire = s.wire[1:]
		switch f := f.(type) {
		case *wire.Chunk:
			if s.perfect || !s.chance(1) {
				s.receiveChunk(s.books[f.InstructionID], f)
			}
		case *wire.Result:
			s.receiveResult(s.books[f.InstructionID], f)
		}
	}
}

func (s *simulation) receiveChunk(a *account, c *wire.Chunk) {
	if a.settled {
		return
	}
	if _, ok := a.reorder[c.StreamSeq]; c.StreamSeq > a.watermark && !ok {
		a.reorder[c.StreamSeq] = c
	}
	for c := a.reorder[a.watermark+1]; c != nil; c = a.reorder[a.watermark+1] {
		delete(a.reorder, c.StreamSeq)
		a.watermark++
		if a.exits > 0 {
			s.breaks(a.id, "§4: chunk %d after the exit chunk", c.StreamSeq)
		}
		if c.Kind == wire.ChunkExit {
			a.exits++
			continue
		}
		if !s.said(a, c.Kind, a.delivered[c.Kind], c.Data) {
			s.breaks(a.id, "what was delivered of %s is not what was said", c.Kind)
		}
		a.delivered[c.Kind] += len(c.Data)
	}
	held := 0
	for _, c := range a.reorder {
		held += len(c.Data)
	}
	if len(a.reorder) > reorderEntries || held > reorderBytes {
		s.breaks(a.id, "R8: reorder buffer holds %d chunks, %d bytes", len(a.reorder), held)
	}
	upTo := a.watermark
	if s.perfect || !s.chance(5) {
		s.acks = append(s.acks, func() { s.outbox.AckChunk(a.id, upTo) })
	}
}

func (s *simulation) receiveResult(a *account, r *wire.Result) {
	if !a.settled {
		if len(a.reorder) > 0 || !s.complete(a) {
			// A chunk was lost on the way in: the server waits for it, and takes
			// the result when it comes again.
			if s.perfect && len(s.wire) == 0 && a.next == a.watermark+1 {
				s.breaks(a.id, "result before the output was complete")
			}
			return
		}
		a.settle()
		exec, ok := r.Outcome.(wire.ExecOutcome)
		if ok && (a.exits != 1 || a.seen[a.watermark].ExitCode != exec.ExitCode) || !ok && a.exits != 0 {
			s.breaks(a.id, "§4: %d exit chunks with outcome %v", a.exits, r.Outcome)
		}
	}
	if s.perfect || !s.chance(20) {
		s.acks = append(s.acks, func() { s.outbox.AckResult(a.id) })
	}
}

// ended, said and complete look at the truth: whether the command has ended, has
// said data after so many bytes, and has said no more than was delivered.
func (s *simulation) ended(a *account) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.finished
}

func (s *simulation) said(a *account, kind wire.ChunkKind, after int, data []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.HasPrefix(a.truth[kind].Bytes()[after:], data)
}

func (s *simulation) complete(a *account) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, b := range a.truth {
		if b.Len() != a.delivered[k] {
			return false
		}
	}
	_, exec := a.outcome.(wire.ExecOutcome)
	return !exec || a.exits > 0
}

func (s *simulation) takeAcks(n int) {
	for ; n > 0 && len(s.acks) > 0; n-- {
		s.acks[0]()
		s.acks = s.acks[1:]
	}
}

// oddAck has the server say something that makes no sense.
func (s *simulation) oddAck() {
	if len(s.accounts) == 0 {
		return
	}
	a := s.accounts[s.rnd.IntN(len(s.accounts))]
	switch s.rnd.IntN(5) {
	case 0:
		s.outbox.AckChunk(a.id, 1<<40)
	case 1:
		s.outbox.AckChunk(a.id, -1-s.rnd.Int64N(5))
	case 2:
		s.outbox.AckChunk(a.id, a.watermark-s.rnd.Int64N(5))
	case 3:
		s.outbox.AckResult("ins_nobody")
	case 4:
		if a.deviceSeq == 0 {
			s.outbox.AckResult(a.id)
		}
	}
}

// writeOff has the server close an instruction that the device still works on.
func (s *simulation) writeOff() {
	if n := len(s.accounts); n > 0 && s.chance(50) {
		s.accounts[s.rnd.IntN(n)].settle()
	}
}

// disconnect lets part of what is under way arrive and loses the rest.
func (s *simulation) disconnect() {
	s.receive(s.rnd.IntN(len(s.wire) + 1))
	s.takeAcks(s.rnd.IntN(len(s.acks) + 1))
	s.wire, s.acks, s.live = nil, nil, false
	s.outbox.Suspend()
}

func (s *simulation) connect() {
	if s.chance(3) { // another server process: it knows of nothing
		for _, a := range s.accounts {
			a.settle()
		}
	}
	var pending []string
	watermarks := map[string]int64{}
	for _, a := range s.accounts {
		a.resultOut = false
		if a.settled {
			a.fenced = true
			continue
		}
		pending = append(pending, a.id)
		a.floor = a.watermark
		a.next = a.watermark + 1
		switch s.rnd.IntN(10) {
		case 0:
			a.floor = -1 // an absent watermark says nothing
		case 1:
			watermarks[a.id] = 1 << 40 // nor does one above all that was sent
			a.floor = -1
		default:
			watermarks[a.id] = a.watermark
		}
	}
	s.rnd.Shuffle(len(pending), func(i, j int) { pending[i], pending[j] = pending[j], pending[i] })
	s.gen++
	s.live = true
	s.outbox.Resume(wire.Gen(fmt.Sprint(s.gen)), pending, watermarks)
	for _, id := range s.outbox.Holding() {
		if !slices.Contains(pending, id) {
			s.breaks(id, "R2: held though it was not listed")
		}
	}
}

func (s *simulation) checkBounds() {
	st := s.outbox.Stats()
	if most := simTotalBytes + st.Lanes*wire.MaxChunkBytes; st.Bytes > most {
		s.breaks("", "%d bytes held, bound %d", st.Bytes, most)
	}
	if st.Chunks > st.Lanes*(simLaneChunks+1) || st.Bytes > st.Lanes*simLaneBytes {
		s.breaks("", "%d chunks, %d bytes held by %d lanes", st.Chunks, st.Bytes, st.Lanes)
	}
}

// settleAll lets a server that loses nothing finish what there is: every
// instruction that it holds must settle and everything held must go.
func (s *simulation) settleAll() {
	s.perfect = true
	if s.live && s.chance(50) { // else what was lost on this connection must come again on it
		s.disconnect()
	}
	if !s.live {
		s.connect()
	}
	for range 2000 {
		s.send(100)
		s.receive(100)
		s.takeAcks(100)
		time.Sleep(time.Second)
		s.outbox.Tick(time.Now())
		synctest.Wait()
		if s.first() != nil || len(s.outbox.Holding()) == 0 {
			break
		}
	}
	for _, a := range s.accounts {
		if s.first() == nil && !a.settled && a.results < 10 {
			s.breaks(a.id, "never settled: watermark %d, handed out %d, finished %v", a.watermark, a.next, s.ended(a))
		}
	}
}
