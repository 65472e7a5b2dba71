package link

import (
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// Phase is what a link is doing.
type Phase string

// The phases.
const (
	Starting    Phase = "starting"
	Discovering Phase = "discovering" // asking the server where its device lane is
	Connecting  Phase = "connecting"
	Handshaking Phase = "handshaking"
	Fencing     Phase = "fencing" // ending what the server no longer counts on
	Active      Phase = "active"
	BackingOff  Phase = "backing_off"
	Sleeping    Phase = "sleeping" // the machine is about to suspend, or does
	Leaving     Phase = "leaving"  // goodbye was said or is owed; work is being finished
	Stopped     Phase = "stopped"
)

// Phases returns the closed set.
func Phases() []Phase {
	return []Phase{Starting, Discovering, Connecting, Handshaking, Fencing, Active, BackingOff, Sleeping, Leaving, Stopped}
}

// Cause is why a link entered its phase.
type Cause string

// Causes of going on.
const (
	CauseStarted      Cause = "started"
	CauseRetryDue     Cause = "retry_due"      // the back-off is over
	CauseWoke         Cause = "woke"           // the machine is back from sleep
	CausePathUnknown  Cause = "path_unknown"   // discovery has not succeeded yet, or a 404 made it stale
	CausePathFound    Cause = "path_found"     // discovery named the lane
	CausePathKept     Cause = "path_kept"      // discovery failed; the last good path is tried
	CauseSocketOpen   Cause = "socket_open"    // the upgrade was accepted
	CauseHelloAck     Cause = "hello_accepted" // a generation was given
	CauseFenced       Cause = "fenced"         // everything of older generations is settled
	CauseFencedStuck  Cause = "fenced_stuck"   // all but processes the kernel will not let die
	CauseSuspend      Cause = "suspend"        // the machine says that it will sleep
	CauseToldShutdown Cause = "told_shutdown"
	CauseToldUserStop Cause = "told_user_stop"
)

// Causes of backing off.
const (
	CauseLaneOff         Cause = "lane_off"          // the server runs no device lane
	CauseDialFailed      Cause = "dial_failed"       // no connection: name, network, TLS, proxy
	CauseUpgradeMissing  Cause = "upgrade_not_found" // 404: the path is not there (any more)
	CauseUpgradeRefused  Cause = "upgrade_refused"   // any other answer than an upgrade
	CauseNoChallenge     Cause = "no_challenge"      // nothing came within the handshake deadline
	CauseNoAnswer        Cause = "no_answer"         // the hello was not answered within it
	CauseHandshakeFailed Cause = "handshake_failed"  // the socket or a frame failed on the way
	CauseServerTooOld    Cause = "server_too_old"    // it speaks only versions below ours
	CauseAuthFailed      Cause = "auth_failed"
	CauseEnrollmentGone  Cause = "enrollment_probably_gone" // auth_failed, several times in a row
	CauseDraining        Cause = "draining"                 // by reject or bye
	CauseConnected       Cause = "already_connected"
	CauseRejectUnknown   Cause = "reject_unknown" // a code outside the closed set
	CauseByeUnknown      Cause = "bye_unknown"    // a reason outside the closed set
	CausePeerClosed      Cause = "peer_closed"    // close frame or end of stream
	CauseSocketFailed    Cause = "socket_failed"  // any other error of the socket
	CausePeerSilent      Cause = "peer_silent"    // two intervals without a byte, pings included
	CauseProbeFailed     Cause = "probe_failed"   // no sign of life after a sleep or a freeze
	CauseWriteStalled    Cause = "write_stalled"  // one frame could not be written in time
)

// Causes of stopping.
const (
	CauseRevoked      Cause = "revoked"
	CauseSuperseded   Cause = "superseded"
	CauseTooOld       Cause = "executor_too_old"
	CauseDrained      Cause = "drained"       // goodbye said, work finished
	CauseDrainOver    Cause = "drain_over"    // the drain's time was up; the rest was ended
	CauseStoppedAtOne Cause = "stopped_now"   // without a drain
	CauseBadIdentity  Cause = "hello_invalid" // no valid hello can be made of this identity
)

// Causes returns the closed set.
func Causes() []Cause {
	return []Cause{
		CauseStarted, CauseRetryDue, CauseWoke, CausePathUnknown, CausePathFound, CausePathKept, CauseSocketOpen,
		CauseHelloAck, CauseFenced, CauseFencedStuck, CauseSuspend, CauseToldShutdown, CauseToldUserStop,
		CauseLaneOff, CauseDialFailed, CauseUpgradeMissing, CauseUpgradeRefused, CauseNoChallenge, CauseNoAnswer,
		CauseHandshakeFailed, CauseServerTooOld, CauseAuthFailed, CauseEnrollmentGone, CauseDraining, CauseConnected,
		CauseRejectUnknown, CauseByeUnknown, CausePeerClosed, CauseSocketFailed, CausePeerSilent, CauseProbeFailed,
		CauseWriteStalled,
		CauseRevoked, CauseSuperseded, CauseTooOld, CauseDrained, CauseDrainOver, CauseStoppedAtOne, CauseBadIdentity,
	}
}

// State is one change of state.
type State struct {
	Phase   Phase
	Cause   Cause
	Since   time.Time     // wall clock
	Gen     wire.Gen      // "" unless the phase is fencing, active or leaving
	Attempt int           // connections tried in a row without one that proved good
	Wait    time.Duration // of the back-off
	Stuck   []string      // instruction ids that count as fenced though their processes live
	Err     error         // what went wrong, where something did
}
