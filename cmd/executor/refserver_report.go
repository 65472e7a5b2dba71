package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/internal/remedy"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// event is one thing that happened at the reference server: a line of JSON for
// programs. The topic "json" lists the members.
type event struct {
	Event         string              `json:"event"`
	Server        string              `json:"server,omitempty"`
	Line          int                 `json:"line,omitempty"` // of the input, from 1
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
	Message       string              `json:"message,omitempty"`

	data []byte // for people as it is; for programs Text or Base64
}

// reporter tells of events in their order: programs on stdout, people on stderr
// with the output of instructions where it belongs. Only output waits until it is
// taken: a reader that is slow slows the command, and nothing else.
type reporter struct {
	app  *app
	out  *outlet
	json bool

	mu     sync.Mutex
	midway bool // what an instruction put out last on the terminal has not ended its line
}

// listening tells where the server is.
func (r *reporter) listening(at net.Addr) {
	url, from := addressOf(at)
	if r.json {
		r.tell(event{Event: "listening", Server: url})
		return
	}
	words := []string{"enroll", "--server", url}
	where, after := "on "+url, ""
	switch from {
	case byAddress:
		words = append(words, "--allow-insecure")
	case everywhere:
		where = "on every address of this machine, here on " + url
		after = "From another machine, put this one's address there and add --allow-insecure.\n"
	}
	text := "The reference server listens " + where + ". Any credential will do. For example:\n\n" +
		remedy.Indent + "SEMA_CREDENTIAL=any " + remedy.Command(words...) + "\n\n" + after
	r.out.say(r.app.stderr, []byte(foldAll(text, "", columns)))
}

// tell tells of an event, some time.
func (r *reporter) tell(e event) {
	if r.json {
		r.out.say(r.app.stdout, encoded(e))
		return
	}
	text := foldAll(e.words(), "", columns) + "\n"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.midway {
		text, r.midway = "\n"+text, false
	}
	r.out.say(r.app.stderr, []byte(text))
}

// output passes on what an instruction put out.
func (r *reporter) output(e event) error {
	if !r.json {
		to := r.app.stdout
		if e.Chunk == wire.ChunkStderr {
			to = r.app.stderr
		}
		r.mu.Lock()
		if isTerminal(to) {
			r.midway = !bytes.HasSuffix(e.data, []byte("\n"))
		}
		r.mu.Unlock()
		return r.out.pass(to, e.data)
	}
	if utf8.Valid(e.data) {
		e.Text = string(e.data)
	} else {
		e.Base64 = e.data
	}
	return r.out.pass(r.app.stdout, encoded(e))
}

func encoded(e event) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(e) // its values are texts and JSON
	return b.Bytes()
}

// words tells an event to a person.
func (e event) words() string {
	switch e.Event {
	case "connected":
		return fmt.Sprintf("device %s is connected, generation %s", e.DeviceID, e.Gen)
	case "disconnected":
		return fmt.Sprintf("device %s is not connected any more", e.DeviceID)
	case "goodbye":
		return fmt.Sprintf("device %s says goodbye: %s", e.DeviceID, shown(string(e.Reason)))
	case "waiting":
		return fmt.Sprintf("line %d waits for a device to connect", e.Line)
	case "sent":
		return fmt.Sprintf("%s %s is sent to %s", e.Kind, e.InstructionID, e.DeviceID)
	case "settled":
		how := "is settled by " + strings.ReplaceAll(string(e.By), "_", " ")
		switch e.By {
		case refserver.ByResult:
			how = "is settled"
		case refserver.ByNeverStarted:
			how = "was never started"
		}
		text := fmt.Sprintf("%s %s: %s", e.InstructionID, how, shown(string(e.Outcome)))
		if e.Reason != "" {
			text += ", and its stream is wrong: " + string(e.Reason)
		}
		return text
	case "violation":
		return "the server objects: " + e.Message
	case "refused":
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	}
	return e.Event
}
