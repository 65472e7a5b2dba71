package main

import (
	"fmt"
	"sync"
	"time"
)

// patience is how long the network may be silent before a person is told that
// something is still being waited for.
const patience = time.Second

// progress tells a person that the network is being waited for, once it has
// taken longer than patience.
type progress struct {
	a     *app
	timer *time.Timer

	mu   sync.Mutex
	over bool
}

func newProgress(a *app, doing string) *progress {
	p := &progress{a: a}
	p.timer = time.AfterFunc(patience, func() { p.note(doing + " …") })
	return p
}

// note prints a line, unless the wait is over.
func (p *progress) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		fmt.Fprintln(p.a.stderr, foldAll(line, "", columns))
	}
}

// stop ends it; nothing is printed afterwards.
func (p *progress) stop() {
	p.timer.Stop()
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
}
