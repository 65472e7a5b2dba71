// Package status is the running executor's word on itself: one small JSON file
// per device, replaced atomically at every change of state and every heartbeat,
// and read by people who ask.
//
// The file says what was true when it was written. Whether its writer still lives
// is not in it: the instance lock knows that.
//
// Nothing secret is ever in a Snapshot, nor anything of what commands are or print.
package status

import "time"

// Format is the version of the file's layout. Readers ignore members they do not
// know, so it changes only when a member changes its meaning.
const Format = 1

// Snapshot is all that is known of a running executor at one moment.
type Snapshot struct {
	Format     int         `json:"format"`
	PID        int         `json:"pid"`
	Version    string      `json:"version"`
	DeviceID   string      `json:"deviceId"`
	Server     string      `json:"server"`
	Started    time.Time   `json:"started"`
	Written    time.Time   `json:"written"`
	Epoch      string      `json:"epoch"`
	State      State       `json:"state"`
	Generation string      `json:"generation,omitempty"`
	Work       []Work      `json:"work"`
	Stuck      []string    `json:"stuck,omitempty"` // fenced instructions whose processes the kernel has not let die
	Outbox     Outbox      `json:"outbox"`
	Counters   Counters    `json:"counters"`
	LastError  *LastError  `json:"lastError,omitempty"`
	Notices    []string    `json:"notices,omitempty"` // what the owner of the machine should know
	Host       Environment `json:"host"`
}

// State is what the link is doing and why.
type State struct {
	Phase   string    `json:"phase"`
	Cause   string    `json:"cause"`
	Since   time.Time `json:"since"`
	RetryAt time.Time `json:"retryAt,omitzero"` // while backing off
	Attempt int       `json:"attempt,omitempty"`
}

// Work is one instruction in hand.
type Work struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Received time.Time `json:"received"`
	Started  time.Time `json:"started,omitzero"` // zero: it waits
	BytesOut int64     `json:"bytesOut"`
}

// Outbox is what was said and not acknowledged.
type Outbox struct {
	Instructions int   `json:"instructions"`
	Chunks       int   `json:"chunks"`
	Bytes        int64 `json:"bytes"`
	Results      int   `json:"results"`
	Waiting      int   `json:"waiting"` // instructions that wait for room
	Dropped      int64 `json:"dropped"` // results given up unacknowledged
}

// Counters sum up over the life of the process.
type Counters struct {
	Connections    int64 `json:"connections"`
	Instructions   int64 `json:"instructions"`
	Failed         int64 `json:"failed"`
	FramesIn       int64 `json:"framesIn"`
	FramesOut      int64 `json:"framesOut"`
	BytesIn        int64 `json:"bytesIn"`
	BytesOut       int64 `json:"bytesOut"`
	Heartbeats     int64 `json:"heartbeats"`
	FramesIgnored  int64 `json:"framesIgnored"`  // unknown, unreadable, early or of another generation
	MembersIgnored int64 `json:"membersIgnored"` // unknown ones, of frames that were heeded
}

// LastError is the most recent trouble with the connection.
type LastError struct {
	At     time.Time `json:"at"`
	Cause  string    `json:"cause"`
	Text   string    `json:"text"`
	Remedy string    `json:"remedy,omitempty"` // what a person can do; "": nothing, it is being retried
	Run    string    `json:"run,omitempty"`    // the command that does it
}

// Environment is what commands meet on this machine.
type Environment struct {
	WorkspaceRoot string `json:"workspaceRoot"`
	Shell         string `json:"shell"`
	ProcessLevel  string `json:"processLevel"` // how surely a command's whole tree can be ended
}
