package executor

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/internal/status"
	"github.com/sema-agent/device-executor/link"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

const (
	// reportPause is the least time between two writings of the status file.
	reportPause = 200 * time.Millisecond
	// reportWork is how often it is written while something runs.
	reportWork = time.Second
)

// notices are what the owner of the machine should know. They live as long as the
// executor.
type notices struct {
	mu  sync.Mutex
	all []string
}

func (n *notices) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, text)
}

func (n *notices) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// report gathers what status.json says and writes it, on a goroutine of its own so
// that a slow disk holds nothing up.
type report struct {
	x      *Executor
	path   string        // "": nothing is written
	dirty  chan struct{} // 1-buffered
	fixed  status.Snapshot
	outbox *outbox.Outbox
	link   *link.Link

	mu        sync.Mutex
	state     link.State
	lastError *status.LastError
	work      map[string]*inHand
	order     int
	total     int64
	failed    int64
}

// inHand is one instruction the dispatcher owns.
type inHand struct {
	status.Work
	order int
	out   atomic.Int64
}

func newReport(x *Executor, epoch handshake.Epoch, level string) *report {
	c := &x.cfg
	r := &report{x: x, dirty: make(chan struct{}, 1), work: map[string]*inHand{}}
	if c.Dir != "" {
		r.path = filepath.Join(c.Dir, StatusFile)
	}
	shell, err := instructions.FindShell(c.Shell, c.Env)
	if err != nil {
		x.notice.add(err.Error())
	}
	r.fixed = status.Snapshot{
		PID: os.Getpid(), Version: c.Platform.ExecutorVersion, DeviceID: c.DeviceID, Server: c.Server.String(),
		Started: c.Now(), Epoch: string(epoch),
		Host: status.Environment{WorkspaceRoot: c.WorkspaceRoot, Shell: shell, ProcessLevel: level},
	}
	return r
}

// touch asks for the file to be written soon.
func (r *report) touch() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

// entered takes note of a change of state.
func (r *report) entered(s link.State) {
	r.mu.Lock()
	if s.Gen == "" {
		s.Stuck = nil
	} else if s.Stuck == nil && s.Gen == r.state.Gen {
		s.Stuck = r.state.Stuck
	}
	r.state = s
	trouble := s.Phase == link.BackingOff || s.Phase == link.Stopped && s.Err != nil
	if trouble {
		e := &status.LastError{At: s.Since, Cause: string(s.Cause)}
		e.Remedy, e.Run = r.x.cfg.mend(s.Cause)
		if s.Err != nil {
			e.Text = s.Err.Error()
		} else {
			e.Text = "the server ended the connection"
		}
		r.lastError = e
	}
	r.mu.Unlock()
	r.touch()
}

// Received implements instructions.Observer.
func (r *report) Received(w instructions.Work) {
	r.mu.Lock()
	r.order++
	r.total++
	r.work[w.ID] = &inHand{Work: status.Work{ID: w.ID, Kind: string(w.Kind), Received: w.Received}, order: r.order}
	r.mu.Unlock()
	r.touch()
	if o := r.x.cfg.Observe; o != nil {
		o.Received(w)
	}
}

// Started implements instructions.Observer.
func (r *report) Started(w instructions.Work, at time.Time) {
	r.mu.Lock()
	if h := r.work[w.ID]; h != nil {
		h.Work.Started = at
	}
	r.mu.Unlock()
	r.touch()
	if o := r.x.cfg.Observe; o != nil {
		o.Started(w, at)
	}
}

// Ended implements instructions.Observer.
func (r *report) Ended(w instructions.Work, how instructions.Report) {
	r.mu.Lock()
	delete(r.work, w.ID)
	if _, bad := how.Outcome.(wire.Failure); bad {
		r.failed++
	}
	r.mu.Unlock()
	r.touch()
	if o := r.x.cfg.Observe; o != nil {
		o.Ended(w, how)
	}
}

// meter returns the counter of an instruction's output; nil if it is not in hand.
func (r *report) meter(id string) *atomic.Int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.work[id]; h != nil {
		return &h.out
	}
	return nil
}

// snapshot is what is known now.
func (r *report) snapshot() *status.Snapshot {
	s := r.fixed
	held, count := r.outbox.Stats(), r.link.Counters()
	s.Notices = r.x.notice.list()
	s.Written = r.x.cfg.Now()
	s.Outbox = status.Outbox{Instructions: held.Lanes, Chunks: held.Chunks, Bytes: int64(held.Bytes), Results: held.Results,
		Waiting: held.Waiting, Dropped: held.GivenUp}
	s.Counters = status.Counters{Connections: count.Connections, FramesIn: count.FramesIn, FramesOut: count.FramesOut,
		BytesIn: count.BytesIn, BytesOut: count.BytesOut, Heartbeats: count.Heartbeats,
		FramesIgnored:  count.OtherGen + count.Early + count.UnknownFrames + count.Malformed,
		MembersIgnored: count.UnknownMembers}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.State = status.State{Phase: string(r.state.Phase), Cause: string(r.state.Cause), Since: r.state.Since, Attempt: r.state.Attempt}
	if r.state.Wait > 0 {
		s.State.RetryAt = r.state.Since.Add(r.state.Wait)
	}
	s.Generation = string(r.state.Gen)
	s.Stuck = r.state.Stuck
	s.LastError = r.lastError
	s.Counters.Instructions, s.Counters.Failed = r.total, r.failed
	s.Work = []status.Work{}
	for _, h := range slices.SortedFunc(maps.Values(r.work), func(a, b *inHand) int { return a.order - b.order }) {
		w := h.Work
		w.BytesOut = h.out.Load()
		s.Work = append(s.Work, w)
	}
	return &s
}

func (r *report) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.work) > 0
}

// run writes the file when something changed, until ctx ends, and once more then.
func (r *report) run(ctx context.Context) {
	said := false
	write := func() {
		if r.path == "" {
			return
		}
		if err := status.Write(r.path, r.snapshot()); err != nil && !said {
			said = true // once: the disk may be full, and the log with it
			r.x.cfg.Log.Warn("the status file cannot be written", "err", err)
		}
	}
	pause := time.NewTimer(reportWork)
	defer pause.Stop()
	for {
		var again <-chan time.Time
		if r.path != "" && r.busy() {
			pause.Reset(reportWork)
			again = pause.C
		}
		select {
		case <-ctx.Done():
			write()
			return
		case <-r.dirty:
		case <-again:
		}
		write()
		pause.Reset(reportPause)
		select {
		case <-ctx.Done():
			write()
			return
		case <-pause.C:
		}
	}
}
