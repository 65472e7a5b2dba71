package instructions

import (
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Work identifies an instruction to an Observer. Args holds command text and
// paths, which an observer writes down only where the owner of the machine asked
// for it.
type Work struct {
	ID            string
	Kind          wire.Kind
	RootSessionID string
	Args          wire.Args // nil if they could not be decoded
	Received      time.Time
}

// Report is how an instruction ended.
type Report struct {
	Started        time.Time // zero: it never began
	Ended          time.Time
	BytesIn        int64        // payload bytes received
	BytesOut       int64        // output bytes handed to the outbox
	Outcome        wire.Outcome // what was answered; for fenced work, what would have been
	Fenced         bool         // ended by the fence, nothing was answered
	ProcessesEnded int          // left behind by the command and ended with it
	Stuck          bool         // answered for: its call has not come back from the kernel
}

// Observer is told of every instruction that a dispatcher owned: Received, then
// Started if it began, then Ended, in this order for one id. It is called on the
// path of the work and must return at once.
type Observer interface {
	Received(Work)
	Started(Work, time.Time)
	Ended(Work, Report)
}

// nobody is the Observer of a dispatcher that nobody watches.
type nobody struct{}

func (nobody) Received(Work)           {}
func (nobody) Started(Work, time.Time) {}
func (nobody) Ended(Work, Report)      {}
