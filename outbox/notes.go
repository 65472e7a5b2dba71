package outbox

import (
	"log/slog"
	"time"
)

// notePause is the least time between two log records of the same words. A server
// can bring about thousands of them in an instant; what comes meanwhile is counted.
const notePause = time.Minute

// note is a log record that waits for the mutex to be released.
type note struct {
	level slog.Level
	msg   string
	attrs []slog.Attr
}

// notes are the log records that wait, and what was said lately.
type notes struct {
	due    []note
	lately map[string]*repeated // by the words
}

// repeated is a record that was written.
type repeated struct {
	said time.Duration // when, on the outbox's clock
	more int           // how many were not written since
	last note          // of these
}

// note has a record written: the first at once, the rest by a count.
func (o *Outbox) note(level slog.Level, msg, id string, attrs ...slog.Attr) {
	n := note{level, msg, append(attrs, slog.String("instruction", shorten(id)))}
	if r := o.notes.lately[msg]; r != nil {
		r.more++
		r.last = n
		return
	}
	if o.notes.lately == nil {
		o.notes.lately = map[string]*repeated{}
	}
	o.notes.lately[msg] = &repeated{said: o.clock()}
	o.notes.due = append(o.notes.due, n)
}

// noteMore says how many more there were of what was said a while ago.
func (o *Outbox) noteMore(now time.Duration) {
	for msg, r := range o.notes.lately {
		switch {
		case now-r.said < notePause:
		case r.more == 0:
			delete(o.notes.lately, msg)
		default:
			r.last.attrs = append(r.last.attrs, slog.Int("more", r.more))
			o.notes.due = append(o.notes.due, r.last)
			*r = repeated{said: now}
		}
	}
}

// unlock releases mu, then writes the log records collected under it.
func (o *Outbox) unlock() {
	due := o.notes.due
	o.notes.due = nil
	o.mu.Unlock()
	for _, n := range due {
		o.log.LogAttrs(ctxNone, n.level, n.msg, n.attrs...)
	}
}
