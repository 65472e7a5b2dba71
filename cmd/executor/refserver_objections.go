package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/sema-agent/device-executor/refserver"
)

// objections tells what the server has to object to, as soon as it does.
type objections struct {
	report *reporter
	more   chan struct{} // there may be new ones
	last   chan struct{} // closed when there will be no more
	told   int           // tell's alone, until it has returned
}

func newObjections(r *reporter) *objections {
	return &objections{report: r, more: make(chan struct{}, 1), last: make(chan struct{})}
}

// hear is a handler for the server's log: the server logs what it books, and what
// is in its books is told from there. The rest goes to next.
func (o *objections) hear(next slog.Handler) slog.Handler { return &booksHandler{next, o} }

// tell tells until close. The server is closed by then.
func (o *objections) tell(server *refserver.Server) {
	for last := false; !last; {
		select {
		case <-o.more:
		case <-o.last:
			last = true
		}
		for _, v := range server.Violations()[o.told:] {
			o.told++
			o.report.tell(event{Event: "violation", Reason: v.Reason, Message: objection(v), DeviceID: v.DeviceID, InstructionID: v.InstructionID})
		}
	}
}

func (o *objections) close() { close(o.last) }

type booksHandler struct {
	slog.Handler
	o *objections
}

// Handle implements slog.Handler.
func (h *booksHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message != "violation" {
		return h.Handler.Handle(ctx, r)
	}
	select {
	case h.o.more <- struct{}{}:
	default:
	}
	return nil
}

// objection puts one into words: the reason, what is known of it, and about what.
func objection(v refserver.Violation) string {
	text := string(v.Reason)
	if v.Detail != "" {
		text += ": " + v.Detail
	}
	about := v.Type // an HTTP path
	if v.Conn != 0 {
		what := "a frame"
		if v.Type != "" {
			what = v.Type
		}
		if v.Size > 0 {
			what += fmt.Sprintf(" of %d bytes", v.Size)
		}
		about = fmt.Sprintf("%s on connection %d", what, v.Conn)
	}
	for _, more := range []struct{ name, value string }{{"device", v.DeviceID}, {"instruction", v.InstructionID}, {"gen", string(v.Gen)}} {
		if more.value != "" {
			about += ", " + more.name + " " + more.value
		}
	}
	if v.Seq > 0 {
		about += fmt.Sprintf(", seq %d", v.Seq)
	}
	return shown(text + " (" + about + ")")
}
