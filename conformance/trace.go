package conformance

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// message is one message as it went by.
type message struct {
	refserver.Frame
	dir refserver.Direction
	at  time.Time
	raw bool // written by the row itself, past the server's books
	// sum tells chunks of different content, and results of different outcomes,
	// apart; 0 for all others.
	sum   uint64
	hello *wire.Hello
	beat  *wire.Heartbeat
}

// trace keeps what went over all connections of a row.
type trace struct {
	mu    sync.Mutex
	start time.Time
	all   []message
	left  int // messages that were not kept
	// secret is a key's seed that must not go over the wire; leaked are the types of
	// frames that held it.
	secret []byte
	leaked []string
	// garbled are the types of text frames that were not UTF-8.
	garbled []string
}

// The most messages that are kept of each side, for rows that provoke floods.
const (
	mostOfServer = 20_000
	mostOfDevice = 500_000
)

func newTrace() *trace { return &trace{start: time.Now()} }

// see is refserver.Config.Trace.
func (t *trace) see(dir refserver.Direction, f refserver.Frame, raw []byte) {
	m := message{Frame: f, dir: dir, at: time.Now()}
	if dir == refserver.FromDevice && !f.Binary {
		decoded, err := wire.DecodeDevice(raw, wire.MaxFrameBytes)
		if err == nil {
			m.sum = contentOf(decoded)
		}
		m.hello, _ = decoded.(*wire.Hello)
		m.beat, _ = decoded.(*wire.Heartbeat)
	}
	if dir == refserver.FromServer && f.Type == "raw" {
		m.raw = true
		m.parse(raw)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if dir == refserver.FromDevice {
		if !f.Binary && !utf8.Valid(raw) {
			t.garbled = append(t.garbled, f.Type)
		}
		if t.secret != nil && holdsKey(string(raw), t.secret) != "" {
			t.leaked = append(t.leaked, f.Type)
		}
	}
	most := mostOfDevice
	if dir == refserver.FromServer {
		most = mostOfServer
	}
	if len(t.all) < most {
		t.all = append(t.all, m)
	} else {
		t.left++
	}
}

// parse reads from a frame that the server did not write what is shown of others.
func (m *message) parse(raw []byte) {
	var f struct {
		T             string   `json:"t"`
		Gen           wire.Gen `json:"gen"`
		InstructionID string   `json:"instructionId"`
		Kind          string   `json:"kind"`
		Reason        string   `json:"reason"`
		Code          string   `json:"code"`
		Part          string   `json:"part"`
	}
	if json.Unmarshal(raw, &f) == nil && f.T != "" {
		m.Type, m.Gen, m.InstructionID, m.Kind = f.T, f.Gen, f.InstructionID, f.Kind+f.Reason+f.Code+f.Part
	}
}

// sumSeed makes digests comparable within a run of the suite.
var sumSeed = maphash.MakeSeed()

// contentOf is a digest of what a retransmission must not change.
func contentOf(f wire.DeviceFrame) uint64 {
	var h maphash.Hash
	h.SetSeed(sumSeed)
	switch f := f.(type) {
	case *wire.Chunk:
		fmt.Fprintf(&h, "%s %d ", f.Kind, f.ExitCode)
		_, _ = h.Write(f.Data) // never fails
	case *wire.Result:
		b, err := wire.AppendDevice(nil, &wire.Result{Gen: "1", InstructionID: f.InstructionID, Outcome: f.Outcome})
		if err != nil {
			return 0
		}
		_, _ = h.Write(b)
	default:
		return 0
	}
	return h.Sum64()
}

// messages returns those that went by so far and are wanted.
func (t *trace) messages(wanted func(*message) bool) []message {
	t.mu.Lock()
	defer t.mu.Unlock()
	var got []message
	for i := range t.all {
		if wanted(&t.all[i]) {
			got = append(got, t.all[i])
		}
	}
	return got
}

// any reports whether a message went by.
func (t *trace) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) > 0
}

// notText lists the types of the device's text messages that were not UTF-8.
func (t *trace) notText() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.garbled)
}

// fromDevice wants the device's frames of the given types, all without any.
func fromDevice(types ...wire.DeviceFrameType) func(*message) bool {
	return func(m *message) bool {
		return m.dir == refserver.FromDevice && (len(types) == 0 || slices.Contains(types, wire.DeviceFrameType(m.Type)))
	}
}

// about narrows to one instruction.
func about(id string, wanted func(*message) bool) func(*message) bool {
	return func(m *message) bool { return m.InstructionID == id && wanted(m) }
}

// onConn narrows to one connection.
func onConn(n int64, wanted func(*message) bool) func(*message) bool {
	return func(m *message) bool { return m.Conn == n && wanted(m) }
}

// shown is how many lines of frames a failed row has at most.
const shown = 40

// lines tells the exchange, one line a frame; of long runs of the same kind the
// ends, and of a long exchange the end.
func (t *trace) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for i := 0; i < len(t.all); {
		end := i + 1
		for end < len(t.all) && t.all[end].follows(&t.all[i]) {
			end++
		}
		run := t.all[i:end]
		i = end
		if len(run) <= 4 {
			for _, m := range run {
				lines = append(lines, m.line(t.start))
			}
			continue
		}
		lines = append(lines, run[0].line(t.start), fmt.Sprintf("%10s %d more %s frames", "…", len(run)-2, run[0].Type),
			run[len(run)-1].line(t.start))
	}
	if n := len(lines) - shown; n > 0 {
		lines = append([]string{fmt.Sprintf("… %d lines before these", n)}, lines[n:]...)
	}
	if t.left > 0 {
		lines = append(lines, fmt.Sprintf("… and %d frames that were not kept", t.left))
	}
	return lines
}

// follows reports whether a message differs from an earlier one in numbers only.
func (m *message) follows(first *message) bool {
	return m.dir == first.dir && m.Conn == first.Conn && m.Type == first.Type && m.Kind == first.Kind &&
		m.InstructionID == first.InstructionID && m.Gen == first.Gen && m.Refused == first.Refused
}

func (m *message) line(start time.Time) string {
	var b strings.Builder
	arrow := "→"
	if m.dir == refserver.FromServer {
		arrow = "←"
	}
	typ := m.Type
	if typ == "" {
		typ = "(not a frame)"
	}
	fmt.Fprintf(&b, "%8.3fs #%d %s %-13s %7d B", m.at.Sub(start).Seconds(), m.Conn, arrow, typ, m.Size)
	if m.Gen != "" {
		fmt.Fprintf(&b, " gen=%s", m.Gen)
	}
	if m.Kind != "" {
		fmt.Fprintf(&b, " %s", m.Kind)
	}
	if m.Seq >= 0 {
		fmt.Fprintf(&b, " seq=%d", m.Seq)
	}
	if m.InstructionID != "" {
		fmt.Fprintf(&b, " %s", shorten(m.InstructionID))
	}
	if m.raw {
		b.WriteString(" (as the row has it)")
	}
	if m.Refused != "" {
		fmt.Fprintf(&b, " REFUSED %s", m.Refused)
	}
	return b.String()
}

// shorten keeps the end of an id, which is what tells ids apart.
func shorten(id string) string {
	if len(id) > 12 {
		return "…" + id[len(id)-8:]
	}
	return id
}
