package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/internal/status"
)

// books enter commands and temporary files into the ledger while they exist.
type books struct {
	ledger *fence.Ledger

	mu       sync.Mutex
	commands map[process.Recorded]fence.Key
}

// openBooks returns nil for an executor that keeps nothing on disk.
func (x *Executor) openBooks() (*books, error) {
	if x.cfg.Dir == "" {
		return nil, nil
	}
	status.Sweep(filepath.Join(x.cfg.Dir, StatusFile))
	ledger, err := fence.OpenLedger(filepath.Join(x.cfg.Dir, LedgerDir))
	if err != nil {
		return nil, err
	}
	return &books{ledger: ledger, commands: map[process.Recorded]fence.Key{}}, nil
}

// before is process.Config.Before.
func (b *books) before(r process.Recorded) error {
	key, err := b.ledger.Add(fence.Entry{Kind: fence.EntryProcess, InstructionID: r.InstructionID,
		BootID: r.BootID, PID: r.PID, StartTime: r.StartTime})
	if err != nil {
		return cannot("enter the command", err)
	}
	b.mu.Lock()
	b.commands[r] = key
	b.mu.Unlock()
	return nil
}

// after is process.Config.After.
func (b *books) after(r process.Recorded) {
	b.mu.Lock()
	key, ok := b.commands[r]
	delete(b.commands, r)
	b.mu.Unlock()
	if ok {
		_ = b.ledger.Remove(key) // what stays is looked at, and found dead, by the next start
	}
}

// Record implements files.Journal.
func (b *books) Record(e files.Entry) (forget func(), err error) {
	key, err := b.ledger.Add(fence.Entry{Kind: fence.EntryTemp, Target: e.Target, Temp: e.Temp, Ours: e.Ours, Expected: e.Expected})
	if err != nil {
		return nil, cannot("enter the temporary file", err)
	}
	return func() { _ = b.ledger.Remove(key) }, nil
}

// cannot says why an entry was not taken and, to whoever has only this executor to
// help himself with, what still works.
func cannot(what string, err error) error {
	err = fmt.Errorf("%s into the ledger: %w", what, err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w; free some room there: removing files by the remove instruction works without any", err)
	}
	return err
}

// mend ends and tidies up what an executor left that did not come to its end. What
// cannot be mended is said and does not stop the start.
func (x *Executor) mend(ctx context.Context, b *books, layer *files.Layer) {
	log := x.cfg.Log
	found, aside, err := b.ledger.Entries()
	for _, name := range aside {
		log.Warn("a broken entry of the ledger was set aside", "file", name)
	}
	if err != nil {
		log.Warn("the ledger cannot be read; what an earlier executor left may still be there", "err", err)
		x.notice.add("the ledger cannot be read: " + err.Error())
		return
	}
	limit, cancel := context.WithTimeout(ctx, mendLimit)
	defer cancel()
	var commands []process.Recorded
	for _, f := range found {
		if f.Kind == fence.EntryProcess {
			commands = append(commands, process.Recorded{InstructionID: f.InstructionID, BootID: f.BootID, PID: f.PID, StartTime: f.StartTime})
		}
	}
	mended := true
	if x.cfg.Control == nil {
		if err := process.Recover(limit, commands, log); err != nil {
			mended = false
			log.Warn("commands of an earlier executor could not be ended", "err", err)
			x.notice.add("commands of an earlier executor could not be ended: " + err.Error())
		}
	}
	for _, f := range found {
		switch {
		case f.Kind == fence.EntryProcess && mended:
			_ = b.ledger.Remove(f.Key)
		case f.Kind == fence.EntryTemp && layer != nil:
			x.tidy(limit, b, layer, f)
		}
	}
}

// tidy finishes or takes back one write that a crash cut short.
func (x *Executor) tidy(ctx context.Context, b *books, layer *files.Layer, f fence.Found) {
	did, err := layer.Recover(ctx, files.Entry{Target: f.Target, Temp: f.Temp, Ours: f.Ours, Expected: f.Expected})
	if err != nil {
		x.cfg.Log.Warn("a write that a crash cut short could not be tidied up; the next start tries again", "err", err)
		x.notice.add("a write that a crash cut short could not be tidied up: " + err.Error())
		return
	}
	if did != "" {
		x.cfg.Log.Info("tidied up after a write that a crash cut short", "did", did)
	}
	_ = b.ledger.Remove(f.Key)
}
