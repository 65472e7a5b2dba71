package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// outletPause is how often an outlet that was interrupted looks whether it gets
// on. A write that takes longer than two of them is given up.
const outletPause = time.Second

// errUnread is what comes of what nobody read in time.
var errUnread = errors.New("nobody reads the output")

// outlet writes for many, in one order. Who has something to say need not wait for
// who reads it: a terminal that is held, or a pipe that nobody empties, would hold
// up the connections of a server with it, and the end after an interrupt.
type outlet struct {
	vital io.Writer // what it is all for; nil: nothing is
	stop  func()    // is called when that cannot be written to

	mu      sync.Mutex
	queue   []utterance
	last    bool  // no more will come
	writes  int64 // begun so far
	writing bool
	broken  error // why vital cannot be written to

	wake   chan struct{} // there is more in the queue, or no more will come
	idle   chan struct{} // closed when the writer has ended
	giveUp func()        // lets go of everybody who waits
	gone   chan struct{} // closed by giveUp
}

// utterance is a text on its way.
type utterance struct {
	to   io.Writer
	text []byte
	done chan<- error // buffered; nil: nobody waits
}

// newOutlet starts an outlet. Once ctx has ended it does not wait for ever for who
// does not read. In a write that does not come back, its goroutine may last as
// long as the process.
func newOutlet(ctx context.Context, vital io.Writer, stop func()) *outlet {
	o := &outlet{vital: vital, stop: stop, wake: make(chan struct{}, 1), idle: make(chan struct{}), gone: make(chan struct{})}
	o.giveUp = sync.OnceFunc(func() { close(o.gone) })
	go o.run()
	context.AfterFunc(ctx, o.watch)
	return o
}

// say has a text written some time. The text is copied.
func (o *outlet) say(to io.Writer, text []byte) { o.add(utterance{to: to, text: bytes.Clone(text)}) }

// pass has a text written, and waits until it is. The text is copied.
func (o *outlet) pass(to io.Writer, text []byte) error {
	done := make(chan error, 1)
	o.add(utterance{to, bytes.Clone(text), done})
	select {
	case err := <-done:
		return err
	case <-o.gone:
		return errUnread
	}
}

func (o *outlet) add(u utterance) {
	o.mu.Lock()
	o.queue = append(o.queue, u)
	o.mu.Unlock()
	o.poke()
}

func (o *outlet) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes what there is, until the last of it or until it is given up.
func (o *outlet) run() {
	defer close(o.idle)
	for {
		u, more := o.next()
		if !more {
			return
		}
		_, err := u.to.Write(u.text)
		o.mu.Lock()
		o.writing = false
		lost := err != nil && u.to == o.vital
		if lost {
			o.broken = err
		}
		o.mu.Unlock()
		if u.done != nil {
			u.done <- err
		}
		if lost {
			o.stop()
			o.giveUp()
		}
	}
}

// next waits for a text to write.
func (o *outlet) next() (u utterance, more bool) {
	for {
		o.mu.Lock()
		if len(o.queue) > 0 {
			u, o.queue = o.queue[0], o.queue[1:]
			o.writing = true
			o.writes++
			o.mu.Unlock()
			select {
			case <-o.gone:
				return u, false
			default:
				return u, true
			}
		}
		last := o.last
		o.mu.Unlock()
		if last {
			return utterance{}, false
		}
		<-o.wake
	}
}

// watch gives up as soon as a write takes too long.
func (o *outlet) watch() {
	tick := time.NewTicker(outletPause)
	defer tick.Stop()
	for before := int64(-1); ; {
		select {
		case <-o.idle:
			return
		case <-o.gone:
			return
		case <-tick.C:
		}
		o.mu.Lock()
		writes, writing := o.writes, o.writing
		o.mu.Unlock()
		if writing && writes == before {
			o.giveUp()
			return
		}
		before = writes
	}
}

// end waits until all is written or given up. It returns why vital could not be
// written to.
func (o *outlet) end() error {
	o.mu.Lock()
	o.last = true
	o.mu.Unlock()
	o.poke()
	select {
	case <-o.idle:
	case <-o.gone:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.broken
}

// writer is a writer by way of an outlet.
type writer func([]byte) error

// to is a writer that waits; later is one that does not.
func (o *outlet) to(w io.Writer) io.Writer {
	return writer(func(p []byte) error { return o.pass(w, p) })
}

func (o *outlet) later(w io.Writer) io.Writer {
	return writer(func(p []byte) error { o.say(w, p); return nil })
}

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if err := w(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
