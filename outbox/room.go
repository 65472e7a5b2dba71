package outbox

import (
	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// waiter is one Append call that waits for room. The caller's data is read, under
// the mutex, while the caller is still inside Append.
type waiter struct {
	lane       *Lane
	kind       wire.ChunkKind
	data       []byte
	err        error
	waiting    bool
	done       chan struct{} // 1-buffered
	next, prev *waiter
}

// waiters is the line of calls that wait, first come first.
type waiters struct {
	first, last *waiter
	n           int
	pass        uint64
	spare       *waiter // answered ones, for reuse
}

func (ws *waiters) put(w *waiter) {
	w.prev = ws.last
	if ws.last != nil {
		ws.last.next = w
	} else {
		ws.first = w
	}
	ws.last = w
	w.waiting = true
	w.lane.waiting++
	ws.n++
}

func (ws *waiters) take(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ws.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ws.last = w.prev
	}
	w.next, w.prev = nil, nil
	w.waiting = false
	w.lane.waiting--
	ws.n--
}

func (w *waiter) answer(err error) {
	w.err = err
	w.done <- struct{}{}
}

func (o *Outbox) enqueue(l *Lane, kind wire.ChunkKind, data []byte) *waiter {
	w := o.waiters.spare
	if w != nil {
		o.waiters.spare = w.next
		w.next = nil
	} else {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.lane, w.kind, w.data, w.err = l, kind, data, nil
	o.waiters.put(w)
	return w
}

func (o *Outbox) recycle(w *waiter) {
	w.lane, w.data = nil, nil
	w.next = o.waiters.spare
	o.waiters.spare = w
}

// fits reports whether the lane's own bounds leave room for size more bytes.
func (l *Lane) fits(size int) bool {
	return l.chunks.n == 0 || l.chunks.n < l.o.laneChunks && l.bytes+size <= l.o.laneBytes
}

// admits reports whether a chunk of that size may go into the lane.
func (o *Outbox) admits(l *Lane, size int) bool {
	if fault.On("outbox: no bounds") {
		return true
	}
	return l.fits(size) && (l.chunks.n == 0 || o.stats.Bytes+size <= o.totalBytes)
}

// grant lets in whom there is room for, in the order they came. A call that its
// own lane holds back is passed over; one that the overall bound holds back is
// not, except by lanes that hold nothing.
func (o *Outbox) grant() {
	ws := &o.waiters
	ws.pass++
	full := false
	for w := ws.first; w != nil; {
		next := w.next
		l, size := w.lane, sizeFor(len(w.data))
		switch {
		case l.blockedIn == ws.pass: // an earlier call of this lane still waits
		case !l.fits(size):
			l.blockedIn = ws.pass
		case l.chunks.n > 0 && (full || o.stats.Bytes+size > o.totalBytes):
			full = true
			l.blockedIn = ws.pass
		default:
			ws.take(w)
			l.push(w.kind, w.data)
			w.answer(nil)
		}
		w = next
	}
}

// refuse answers all waiting calls of a lane with err.
func (o *Outbox) refuse(l *Lane, err error) {
	for w := o.waiters.first; w != nil && l.waiting > 0; {
		next := w.next
		if w.lane == l {
			o.waiters.take(w)
			w.answer(err)
		}
		w = next
	}
}
