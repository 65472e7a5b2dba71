package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	mostChunk   = 48 << 10 // bytes of one chunk
	mostUnacked = 1 << 20  // bytes of one instruction that wait for a chunkAck
	mostFrame   = 1 << 20
	mostSends   = 10 // of one result
)

// chunk is one piece of output, kept until it is acknowledged.
type chunk struct {
	seq      int64
	kind     string
	data     []byte
	exitCode int
}

// work is one instruction from its arrival to the acknowledgement of its result.
type work struct {
	a      *agent
	id     string
	kind   string
	silent bool // fenced: nothing is said any more

	chunks []chunk
	next   int64 // number of the next chunk
	cursor int64 // number of the next chunk to send on this connection
	held   int   // bytes of chunks

	result frame
	seq    int // deviceSeq
	sent   bool
	sends  int

	content chan serverFrame // payload frames, for the write family
	once    sync.Once
	why     string        // cancel, timeout, fence, aborted, cut
	ended   chan struct{} // closed when it shall end
	over    chan struct{} // closed when it has
}

// agent is the executor: its work, and what is to be sent.
type agent struct {
	home     string
	id       identity
	epoch    string
	epochRaw [16]byte
	gone     chan struct{}

	mu      sync.Mutex
	wake    *sync.Cond
	online  bool
	leaving bool
	gen     string
	works   map[string]*work
	order   []string
	seen    map[string]bool
	queue   []frame // control frames
	writing bool    // a frame was taken and is not yet written
	results int
}

func newAgent(home string, id identity) *agent {
	a := &agent{home: home, id: id, works: map[string]*work{}, seen: map[string]bool{}, gone: make(chan struct{})}
	a.wake = sync.NewCond(&a.mu)
	a.epoch, a.epochRaw = newEpoch()
	return a
}

// open makes a work; the caller holds mu.
func (a *agent) open(id, kind string) *work {
	w := &work{a: a, id: id, kind: kind, seq: a.results, ended: make(chan struct{}), over: make(chan struct{})}
	a.results++
	a.works[id] = w
	a.order = append(a.order, id)
	return w
}

func (a *agent) instruct(f serverFrame) {
	a.mu.Lock()
	if a.seen[f.InstructionID] {
		a.mu.Unlock()
		return
	}
	a.seen[f.InstructionID] = true
	w := a.open(f.InstructionID, f.Kind)
	late := a.leaving
	switch f.Kind {
	case "writeFile", "appendFile":
		w.content = make(chan serverFrame, 16)
	}
	a.mu.Unlock()
	go func() {
		var result frame
		switch {
		case late:
			result = failure("target_unavailable", "this executor is leaving; nothing was started")
		case f.TimeoutMs <= 0:
			result = failure("timeout", "timeoutMs had run out before anything was started")
		default:
			timer := time.AfterFunc(time.Duration(min(f.TimeoutMs, 1<<40))*time.Millisecond, func() { w.end("timeout") })
			result = w.do(f)
			timer.Stop()
		}
		w.finish(result)
	}()
}

func (a *agent) payload(f serverFrame) {
	a.mu.Lock()
	w := a.works[f.InstructionID]
	a.mu.Unlock()
	if w != nil && w.content != nil {
		select {
		case w.content <- f:
		case <-w.over:
		}
	}
}

// end asks a work to end; the first reason counts.
func (w *work) end(why string) {
	w.once.Do(func() {
		w.why = why
		close(w.ended)
		w.a.mu.Lock()
		w.a.wake.Broadcast()
		w.a.mu.Unlock()
	})
}

func (a *agent) end(id, why string) {
	a.mu.Lock()
	w := a.works[id]
	a.mu.Unlock()
	if w != nil {
		w.end(why)
	}
}

func (a *agent) endAll(why string) {
	a.mu.Lock()
	var all []*work
	for _, w := range a.works {
		all = append(all, w)
	}
	a.mu.Unlock()
	for _, w := range all {
		w.end(why)
	}
	for _, w := range all {
		<-w.over
	}
}

// stopped is the outcome of work that was ended; begun says whether anything may
// have happened.
func (w *work) stopped(begun bool) frame {
	switch {
	case w.why == "cancel" && begun:
		return frame{"ok": true, "kind": "cancelled", "state": "killed"}
	case w.why == "cancel":
		return frame{"ok": true, "kind": "cancelled", "state": "not_started"}
	case w.why == "timeout":
		return failure("timeout", "timeoutMs ran out and the work was ended")
	case w.why == "cut":
		return failure("target_unavailable", "the content was cut off; nothing was written")
	}
	return failure("aborted", "the executor was stopped")
}

// put adds output; it waits while too much is unacknowledged. False: the work ends.
func (w *work) put(kind string, data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), mostChunk)
		w.a.mu.Lock()
		for w.held > mostUnacked && !isClosed(w.ended) {
			w.a.wake.Wait()
		}
		if w.held > mostUnacked {
			w.a.mu.Unlock()
			return false
		}
		w.chunks = append(w.chunks, chunk{seq: w.next, kind: kind, data: slices.Clone(data[:n])})
		w.next++
		w.held += n
		w.a.wake.Broadcast()
		w.a.mu.Unlock()
		data = data[n:]
	}
	return true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// finish gives the one answer.
func (w *work) finish(result frame) {
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	defer close(w.over)
	if code, ok := result["exitCode"].(int); ok {
		w.chunks = append(w.chunks, chunk{seq: w.next, kind: "exit", exitCode: code})
		w.next++
	}
	w.result = result
	if b, err := json.Marshal(result); err != nil || len(b) > mostFrame-1024 {
		w.result = failure("unknown", "the answer is larger than a frame")
	}
	w.a.wake.Broadcast()
}

func (w *work) resume(watermark int64) {
	w.release(watermark)
	w.cursor = watermark + 1
	w.sent = false
}

func (w *work) release(upTo int64) {
	for len(w.chunks) > 0 && w.chunks[0].seq <= upTo {
		w.held -= len(w.chunks[0].data)
		w.chunks = w.chunks[1:]
	}
}

func (a *agent) chunksAcked(id string, upTo int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.works[id]; w != nil {
		w.release(upTo)
		a.wake.Broadcast()
	}
}

func (a *agent) acked(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.works[id]; w != nil && w.result != nil {
		delete(a.works, id)
	}
}

func (a *agent) inflight() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := []string{}
	for id, w := range a.works {
		if w.result == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (a *agent) drained() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.works) == 0 && len(a.queue) == 0 && !a.writing
}

func (a *agent) left() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving
}

func (a *agent) control(f frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, f)
	a.wake.Broadcast()
}

// next picks what to send: control frames, then chunks, then results. Nil: nothing.
func (a *agent) next(gen string) frame {
	if len(a.queue) > 0 {
		f := a.queue[0]
		a.queue = a.queue[1:]
		return f
	}
	a.order = slices.DeleteFunc(a.order, func(id string) bool { return a.works[id] == nil })
	for i, id := range a.order {
		w := a.works[id]
		if j := slices.IndexFunc(w.chunks, func(c chunk) bool { return c.seq >= w.cursor }); j >= 0 {
			c := w.chunks[j]
			w.cursor = c.seq + 1
			a.order = append(append(a.order[:i:i], a.order[i+1:]...), id) // another's turn
			f := frame{"t": "chunk", "gen": gen, "instructionId": id, "streamSeq": c.seq, "kind": c.kind}
			if c.kind == "exit" {
				f["exitCode"] = c.exitCode
			} else {
				f["dataB64"] = base64.StdEncoding.EncodeToString(c.data)
			}
			return f
		}
		if w.result != nil && !w.sent && w.sends < mostSends {
			w.sent = true
			w.sends++
			return frame{"t": "result", "gen": gen, "instructionId": id, "deviceSeq": w.seq, "outcome": w.result}
		}
	}
	return nil
}

// writeLoop writes until the connection ends.
func (a *agent) writeLoop(ctx context.Context, ws *websocket.Conn, gen string) {
	stop := context.AfterFunc(ctx, func() {
		a.mu.Lock()
		a.wake.Broadcast()
		a.mu.Unlock()
	})
	defer stop()
	for {
		a.mu.Lock()
		f := a.next(gen)
		for f == nil && ctx.Err() == nil {
			a.wake.Wait()
			f = a.next(gen)
		}
		a.writing = f != nil
		a.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		b, err := json.Marshal(f)
		if err != nil || ws.Write(ctx, websocket.MessageText, b) != nil {
			return
		}
		a.mu.Lock()
		a.writing = false
		a.mu.Unlock()
	}
}

func failure(code, message string) frame {
	return frame{"ok": false, "errorCode": code, "message": message}
}
