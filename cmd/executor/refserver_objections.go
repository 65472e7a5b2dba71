package main

import (
	"context"
	"fmt"

	"github.com/sema-agent/device-executor/refserver"
)

// objections tells what the server has to object to, as soon as it does.
type objections struct {
	report *reporter
	told   int
}

// follow tells until the server is closed.
func (o *objections) follow(server *refserver.Server) {
	_ = server.WaitUntil(context.Background(), func() bool { o.tell(server); return false })
}

// tell tells what is new.
func (o *objections) tell(server *refserver.Server) {
	for _, v := range server.Violations()[o.told:] {
		o.told++
		o.report.tell(event{Event: "violation", Reason: v.Reason, Message: objection(v), DeviceID: v.DeviceID, InstructionID: v.InstructionID})
	}
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
