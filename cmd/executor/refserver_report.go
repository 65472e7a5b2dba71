package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// event is one thing that happened at the reference server: a line of JSON for
// programs. The topic "json" lists the members.
type event struct {
	Event         string              `json:"event"`
	Server        string              `json:"server,omitempty"`
	DeviceID      string              `json:"deviceId,omitempty"`
	Gen           wire.Gen            `json:"gen,omitempty"`
	InstructionID string              `json:"instructionId,omitempty"`
	Kind          wire.Kind           `json:"kind,omitempty"`
	Chunk         wire.ChunkKind      `json:"chunk,omitempty"`
	Text          string              `json:"text,omitempty"`
	Base64        []byte              `json:"base64,omitempty"` // what is no text
	Outcome       json.RawMessage     `json:"outcome,omitempty"`
	By            refserver.SettledBy `json:"settledBy,omitempty"`
	Bytes         int64               `json:"bytes,omitempty"` // of output in all
	Reason        refserver.Reason    `json:"reason,omitempty"`
	Line          int                 `json:"line,omitempty"` // of the input, from 1
	Message       string              `json:"message,omitempty"`

	data []byte // for people as it is; for programs Text or Base64
}

// reporter returns what tells of events, one at a time: programs on stdout, people
// on stderr with the output of instructions where it belongs. A reader that went
// away misses the rest.
func (a *app) reporter(asJSON bool) func(event) {
	var mu sync.Mutex
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		if !asJSON {
			a.tell(e)
			return
		}
		if utf8.Valid(e.data) {
			e.Text = string(e.data)
		} else {
			e.Base64 = e.data
		}
		_ = json.NewEncoder(a.stdout).Encode(e)
	}
}

func (a *app) tell(e event) {
	var text string
	switch e.Event {
	case "listening":
		text = "The reference server listens on " + e.Server + ". Any credential will do. For example:\n\n" +
			"  SEMA_CREDENTIAL=any sema device enroll --server " + e.Server + "\n"
	case "connected":
		text = fmt.Sprintf("device %s is connected, generation %s", e.DeviceID, e.Gen)
	case "goodbye":
		text = fmt.Sprintf("device %s says goodbye: %s", e.DeviceID, e.Reason)
	case "sent":
		text = fmt.Sprintf("%s %s is sent", e.Kind, e.InstructionID)
	case "output":
		to := a.stdout
		if e.Chunk == wire.ChunkStderr {
			to = a.stderr
		}
		_, _ = to.Write(e.data)
		return
	case "settled":
		text = fmt.Sprintf("%s is settled by %s: %s", e.InstructionID, strings.ReplaceAll(string(e.By), "_", " "), e.Outcome)
		if e.Reason != "" {
			text += ", its stream is wrong: " + string(e.Reason)
		}
	case "violation":
		text = "the server objects: " + e.Message
	case "refused":
		text = fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	fmt.Fprintln(a.stderr, foldAll(text, "", columns))
}
