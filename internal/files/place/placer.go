package place

import (
	"encoding/hex"
	"io"

	"github.com/sema-agent/device-executor/internal/files/posix"
)

// Placer makes stages.
type Placer struct {
	calls   posix.Calls
	journal Journal
	random  io.Reader
	lockers turns // for the lock of a folder
	turns   turns // for a step in it
}

// New makes a Placer. Temporary names are drawn from random.
func New(calls posix.Calls, journal Journal, random io.Reader) *Placer {
	return &Placer{calls: calls, journal: journal, random: random, lockers: newTurns(), turns: newTurns()}
}

// Receipt says which object was put where.
type Receipt struct {
	Path    string // real path
	FileID  string
	Created *bool // nil: the file system cannot tell in the same step
}

// Temporary names carry a fixed head and tail, so that recovery touches nothing
// else whatever its journal says.
const (
	tempHead = ".sema-"
	tempTail = ".tmp"
	tempRand = 16 // random bytes between them, in hex
)

func (p *Placer) tempName() (string, error) {
	var b [tempRand]byte
	if _, err := io.ReadFull(p.random, b[:]); err != nil {
		return "", err
	}
	return tempHead + hex.EncodeToString(b[:]) + tempTail, nil
}

func isTempName(name string) bool {
	if len(name) != len(tempHead)+2*tempRand+len(tempTail) ||
		name[:len(tempHead)] != tempHead || name[len(name)-len(tempTail):] != tempTail {
		return false
	}
	_, err := hex.DecodeString(name[len(tempHead) : len(name)-len(tempTail)])
	return err == nil
}
