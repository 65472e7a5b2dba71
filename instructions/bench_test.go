package instructions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

// bench is a dispatcher over a real outbox, with a server's ear at the end.
type bench struct {
	t   *testing.T
	o   *outbox.Outbox
	d   *Dispatcher
	ear *ear
	see *recorder
}

type handlers map[wire.Kind]Handler

// newBench is for use inside a synctest bubble.
func newBench(t *testing.T, h handlers) *bench {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	b := &bench{t: t, see: &recorder{}, ear: newEar()}
	b.o = outbox.New(outbox.Config{Now: time.Now, Log: log})
	b.o.Resume("1", nil, nil)
	b.d = New(Config{Outbox: b.o, Handlers: h, Observe: b.see, Log: log, Now: time.Now})
	return b
}

// listen hears all that the outbox has to say now. Chunks are acknowledged,
// results as well.
func (b *bench) listen() {
	b.t.Helper()
	synctest.Wait()
	for b.ear.hear(b.t, b.o) {
		synctest.Wait()
	}
}

// outcome is the one answer that was given for id.
func (b *bench) outcome(id string) wire.Outcome {
	b.t.Helper()
	b.listen()
	got := b.ear.results[id]
	if len(got) != 1 {
		b.t.Fatalf("%s: %d results, want 1: %v", id, len(got), got)
	}
	return got[0]
}

func (b *bench) unanswered(ids ...string) {
	b.t.Helper()
	b.listen()
	for _, id := range ids {
		if got := b.ear.results[id]; len(got) != 0 {
			b.t.Fatalf("%s: answered %v, want nothing", id, got)
		}
	}
}

// finish ends the bubble's work.
func (b *bench) finish() {
	b.t.Helper()
	if err := b.d.Close(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// ear takes frames as a server would and remembers what they said.
type ear struct {
	results map[string][]wire.Outcome
	chunks  map[string][]*wire.Chunk
	frames  int
}

func newEar() *ear {
	return &ear{results: map[string][]wire.Outcome{}, chunks: map[string][]*wire.Chunk{}}
}

func (e *ear) hear(t testing.TB, o *outbox.Outbox) bool {
	t.Helper()
	raw, ok := o.Next(nil)
	if !ok {
		return false
	}
	e.frames++
	f, err := wire.DecodeDevice(raw, wire.MaxFrameBytes)
	if err != nil {
		t.Fatalf("a server would refuse %.200q: %v", raw, err)
	}
	switch f := f.(type) {
	case *wire.Chunk:
		if want := int64(len(e.chunks[f.InstructionID])); f.StreamSeq != want {
			t.Fatalf("%s: chunk %d, want %d", f.InstructionID, f.StreamSeq, want)
		}
		c := *f
		c.Data = slices.Clone(f.Data)
		e.chunks[f.InstructionID] = append(e.chunks[f.InstructionID], &c)
		o.AckChunk(f.InstructionID, f.StreamSeq)
	case *wire.Result:
		e.results[f.InstructionID] = append(e.results[f.InstructionID], f.Outcome)
		o.AckResult(f.InstructionID)
	}
	return true
}

// text joins the bytes of one kind of chunk.
func (e *ear) text(id string, kind wire.ChunkKind) string {
	var s strings.Builder
	for _, c := range e.chunks[id] {
		if c.Kind == kind {
			s.Write(c.Data)
		}
	}
	return s.String()
}

// exits lists the exit codes that chunks carried.
func (e *ear) exits(id string) []int64 {
	var codes []int64
	for _, c := range e.chunks[id] {
		if c.Kind == wire.ChunkExit {
			codes = append(codes, c.ExitCode)
		}
	}
	return codes
}

// recorder is an Observer that writes down what it hears.
type recorder struct {
	mu      sync.Mutex
	events  []string
	reports map[string]Report
}

func (r *recorder) add(what string, w Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, what+" "+w.ID)
}

func (r *recorder) Received(w Work)             { r.add("received", w) }
func (r *recorder) Started(w Work, _ time.Time) { r.add("started", w) }
func (r *recorder) Ended(w Work, rep Report) {
	r.add("ended", w)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reports == nil {
		r.reports = map[string]Report{}
	}
	r.reports[w.ID] = rep
}

func (r *recorder) of(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []string
	for _, e := range r.events {
		if what, of, _ := strings.Cut(e, " "); of == id {
			events = append(events, what)
		}
	}
	return events
}

func (r *recorder) report(id string) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports[id]
}

// ask makes an instruction that has an hour.
func ask(id string, kind wire.Kind, args string) *wire.Instruction {
	return &wire.Instruction{Gen: "1", InstructionID: id, RootSessionID: "s", Kind: kind, Args: json.RawMessage(args), TimeoutMs: time.Hour.Milliseconds()}
}

func askWithin(id string, kind wire.Kind, args string, within time.Duration) *wire.Instruction {
	in := ask(id, kind, args)
	in.TimeoutMs = within.Milliseconds()
	return in
}

const (
	aCommand = `{"command":"true"}`
	aPath    = `{"path":"/f"}`
	aWrite   = `{"path":"/f","contentLen":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`
)

// untilStopped begins and then works until it is stopped.
func untilStopped(ctx context.Context, c *Call) wire.Outcome {
	if c.Begin(ctx) != nil {
		return c.Stopped(ctx)
	}
	<-ctx.Done()
	return c.Stopped(ctx)
}

// at once.
func exitZero(ctx context.Context, c *Call) wire.Outcome {
	if c.Begin(ctx) != nil {
		return c.Stopped(ctx)
	}
	return wire.ExecOutcome{}
}

// describe renders an outcome for comparison: its kind or code and, where it has
// one, its state or number.
func describe(o wire.Outcome) string {
	switch o := o.(type) {
	case wire.ExecOutcome:
		return fmt.Sprintf("exec %d", o.ExitCode)
	case wire.CancelledOutcome:
		return "cancelled " + string(o.State)
	case wire.Failure:
		return string(o.Code)
	case wire.ReadOutcome:
		return "read"
	case wire.WriteOutcome:
		return "write"
	case wire.VoidOutcome:
		return "void"
	case wire.StatOutcome:
		return "stat"
	}
	return fmt.Sprintf("%T", o)
}
