package place

// Entry is what a crash in the middle of a step would leave unsaid.
type Entry struct {
	Target   string `json:"target"`             // real path of what is to be replaced or made
	Temp     string `json:"temp"`               // temporary name, in the target's folder
	Ours     string `json:"ours,omitempty"`     // file id of the object made here; "": not made yet
	Expected string `json:"expected,omitempty"` // file id of the object that may be replaced
}

// Journal remembers entries across a crash of the process. Record returns only
// when the entry would survive one; what it returns takes the entry back, once
// the temporary name is gone. It need not survive a loss of power.
type Journal interface {
	Record(Entry) (forget func(), err error)
}

// Forgetful is the Journal of programs that have nowhere to write one.
type Forgetful struct{}

// Record implements Journal.
func (Forgetful) Record(Entry) (func(), error) { return func() {}, nil }
