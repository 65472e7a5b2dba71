package activity

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/wire"
)

const (
	queued       = 1024     // lines that may wait for the disk
	batchBytes   = 64 << 10 // of lines, written in one go
	defaultBytes = 2 << 20  // of one file
	files        = 4        // kept: the one that grows and three before it
)

// Config says where and how a Recorder writes.
type Config struct {
	Dir string // the device's folder; it must exist
	// LogCommands adds command text and paths.
	LogCommands bool
	// MaxFileBytes is where a file is put aside for the next one; 0 stands for
	// 2 MiB. Four are kept.
	MaxFileBytes int64
	Now          func() time.Time
	Log          *slog.Logger
}

// Recorder writes the record of one device. It is an instructions.Observer whose
// methods never block and may be called from any goroutine.
type Recorder struct {
	cfg   Config
	pid   int
	queue chan Entry
	lost  atomic.Int64 // lines left out since the last one written
	stop  chan struct{}
	done  chan struct{}
}

var _ instructions.Observer = (*Recorder)(nil)

// New starts a recorder. A file that cannot be written is no error: it is logged,
// tried again with the next line, and what was missed is counted.
func New(c Config) *Recorder {
	if c.MaxFileBytes == 0 {
		c.MaxFileBytes = defaultBytes
	}
	r := &Recorder{
		cfg:   c,
		pid:   os.Getpid(),
		queue: make(chan Entry, queued),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	go r.write()
	return r
}

// Received implements instructions.Observer.
func (r *Recorder) Received(instructions.Work) {}

// Started implements instructions.Observer.
func (r *Recorder) Started(w instructions.Work, at time.Time) {
	if w.Kind == wire.KindExec || w.Kind == wire.KindExecStream {
		r.put(began(w, at, r.pid, r.cfg.LogCommands))
	}
}

// Ended implements instructions.Observer.
func (r *Recorder) Ended(w instructions.Work, report instructions.Report) {
	r.put(ended(w, report, r.pid, r.cfg.LogCommands))
}

func (r *Recorder) put(e Entry) {
	select {
	case r.queue <- e:
	default:
		r.lost.Add(1)
	}
}

// Waiting is the number of lines that wait for the disk.
func (r *Recorder) Waiting() int { return len(r.queue) }

// Close writes what waits and stops. What comes after it is not recorded. If ctx
// ends first, the disk is taken to be stuck and is left to itself.
func (r *Recorder) Close(ctx context.Context) error {
	close(r.stop)
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the activity record: %w", ctx.Err())
	}
}

// write is the goroutine that owns the file.
func (r *Recorder) write() {
	defer close(r.done)
	j := &journal{dir: r.cfg.Dir, max: r.cfg.MaxFileBytes}
	defer j.close()
	failing := false
	flush := func(entries ...Entry) {
		lines, n := r.batch(entries)
		if n == 0 {
			return
		}
		err := j.append(lines)
		if err != nil {
			r.lost.Add(n)
			if !failing {
				r.cfg.Log.Warn("the activity record cannot be written; instructions go on without it", "err", err)
			}
		}
		failing = err != nil
	}
	for {
		select {
		case e := <-r.queue:
			flush(e)
		case <-r.stop:
			for len(r.queue) > 0 {
				flush()
			}
			flush() // a gap nobody told of yet
			return
		}
	}
}

// batch encodes entries and what waits behind them, up to a bound, and before
// them the gap there is to tell of. n counts the lines that would be lost with it.
func (r *Recorder) batch(entries []Entry) (lines []byte, n int64) {
	if lost := r.lost.Swap(0); lost > 0 {
		lines = appendLine(lines, Entry{Phase: Gap, Time: r.cfg.Now().UTC().Truncate(time.Millisecond), PID: r.pid, Lost: lost})
		n += lost
	}
	for _, e := range entries {
		lines = appendLine(lines, e)
		n++
	}
	for len(lines) < batchBytes {
		select {
		case e := <-r.queue:
			lines = appendLine(lines, e)
			n++
		default:
			return lines, n
		}
	}
	return lines, n
}

func appendLine(lines []byte, e Entry) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("activity: an entry of plain members does not encode: %v", err))
	}
	return append(append(lines, b...), '\n')
}
