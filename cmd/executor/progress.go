package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
)

// patience is how long something may take before a person is told that it is
// still being waited for.
const patience = time.Second

// progress tells a person what is being waited for, once it has taken longer than
// patience.
type progress struct {
	a     *app
	timer *time.Timer

	mu    sync.Mutex
	doing string
	over  bool
}

func newProgress(a *app, doing string) *progress {
	p := &progress{a: a, doing: doing}
	p.timer = time.AfterFunc(patience, p.tell)
	return p
}

// turn says what is waited for from now on, and returns what it was before.
func (p *progress) turn(doing string) (before string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.doing = p.doing, doing
	if !p.over {
		p.timer.Reset(patience)
	}
	return before
}

func (p *progress) tell() {
	p.mu.Lock()
	doing := p.doing
	p.mu.Unlock()
	p.note(doing + " …")
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

// awaited is a key store whose calls are waited for under a name of their own.
type awaited struct {
	enroll.KeyStore
	progress *progress
	doing    string
}

// Save implements enroll.KeyStore.
func (s awaited) Save(ctx context.Context, ref enroll.KeyRef, key handshake.PrivateKey) error {
	defer s.progress.turn(s.progress.turn(s.doing))
	return s.KeyStore.Save(ctx, ref, key)
}

// Load implements enroll.KeyStore.
func (s awaited) Load(ctx context.Context, ref enroll.KeyRef) (handshake.PrivateKey, error) {
	defer s.progress.turn(s.progress.turn(s.doing))
	return s.KeyStore.Load(ctx, ref)
}

// Delete implements enroll.KeyStore.
func (s awaited) Delete(ctx context.Context, ref enroll.KeyRef) error {
	defer s.progress.turn(s.progress.turn(s.doing))
	return s.KeyStore.Delete(ctx, ref)
}
