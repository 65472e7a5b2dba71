package simulation

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// Program is what a command does, on either ground. Its output on each stream is a
// beginning of an endless text that its seed determines, so that anyone can tell
// whether a byte is the right one.
type Program struct {
	Seed  uint64   `json:"seed"`
	Steps []Step   `json:"steps,omitempty"`
	Loop  bool     `json:"loop,omitempty"` // the steps are repeated without end
	Exit  int      `json:"exit,omitempty"`
	Term  Reaction `json:"term,omitempty"` // to a polite signal
	// Orphan is how long a process lives that is left behind. It holds the pipes and
	// has a last word on stdout.
	Orphan time.Duration `json:"orphan,omitempty"`
}

// Step waits and then writes.
type Step struct {
	After  time.Duration `json:"after"`
	Stream int           `json:"stream"` // 1 or 2
	Bytes  int           `json:"bytes"`
}

// Reaction is how a command takes a signal that asks it to end.
type Reaction string

// The reactions.
const (
	Dies    Reaction = ""        // at once
	Speaks  Reaction = "speaks"  // with last words on stdout
	Ignores Reaction = "ignores" // and has to be killed
	Lingers Reaction = "lingers" // takes seconds to die even of a kill; real ones ignore
	Undead  Reaction = "undead"  // is never dead, whatever is done; real ones ignore
)

// wordBytes is the length of last words, of an orphan and of a command.
const wordBytes = 32

// exitOfSpeaker is the exit code of a command that had last words.
const exitOfSpeaker = 7

// total is how much the program says on a stream if nothing ends it early.
func (p *Program) total(stream int) (n int) {
	for _, s := range p.Steps {
		if s.Stream == stream {
			n += s.Bytes
		}
	}
	if p.Orphan > 0 && stream == 1 {
		n += wordBytes
	}
	return n
}

// PlayerVariable names the program that plays a Program where commands are real.
const PlayerVariable = "SIMULATION_PLAYER"

// command is the program as the text of a shell command.
func (p *Program) command() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // plain numbers and strings
	}
	return fmt.Sprintf(`exec "$%s" play '%s'`, PlayerVariable, b)
}

// parseCommand finds the program in the text of a command.
func parseCommand(text string) (p Program, err error) {
	_, text, _ = strings.Cut(text, "'")
	text, _, _ = strings.Cut(text, "'")
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("command %q holds no program: %w", text, err)
	}
	return p, nil
}

// text is the endless output of a program on one stream.
func (p *Program) text(stream int) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(p.Seed >> (8 * i))
	}
	key[8] = byte(stream)
	return rand.NewChaCha8(key)
}
