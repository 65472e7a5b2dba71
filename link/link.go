package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/handshake"
	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

const (
	// discoverLimit and dialLimit bound the two steps before the handshake, which
	// has its own deadline.
	discoverLimit = 20 * time.Second
	dialLimit     = 15 * time.Second
	// doubtAfter is how many auth_failed in a row suggest that the enrollment is
	// gone. The server never says so (§1.4).
	doubtAfter = 3
	// lateHello is how long a hello may still reach the server after its socket was
	// given up: an operating system goes on sending for about as long.
	lateHello = 2 * time.Minute
	// napLimit ends a sleep that was announced and did not come.
	napLimit = 30 * time.Second
)

// Link is one device's lane to its server.
type Link struct {
	cfg   Config
	count counters

	leaveOnce sync.Once
	leave     chan struct{}        // closed by Leave
	reason    wire.GoodbyeReason   // set before leave is closed
	suspend   chan chan<- struct{} // Suspend asks; closing what it sent is the answer
	wake      chan struct{}        // 1-buffered
	acked     chan struct{}        // 1-buffered: the outbox may hold no result any more
	ended     chan struct{}        // closed when Run returns

	// What follows belongs to Run's goroutine.
	backOff      backOff
	path         string
	pathKnown    bool     // discovery found it, and no 404 came since
	authFailures int      // in a row
	stuck        []string // what the last fence that came to its end could not see die
	departure    *departure
	watch        *wallWatch
	unanswered   time.Time // when a socket was last given up on which a hello may be under way
}

// New makes a Link that has yet to Run.
func New(cfg Config) *Link {
	l := &Link{
		cfg:     cfg,
		leave:   make(chan struct{}),
		suspend: make(chan chan<- struct{}),
		wake:    make(chan struct{}, 1),
		acked:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
		backOff: backOff{random: cfg.Random},
		path:    cfg.LastPath,
	}
	if l.path == "" {
		l.path = wire.WSPath
	}
	return l
}

// Leave makes Run say goodbye, finish what runs within Config.Drain, end the
// rest, and return nil. Only the first call counts.
func (l *Link) Leave(reason wire.GoodbyeReason) {
	l.leaveOnce.Do(func() {
		l.reason = reason
		close(l.leave)
	})
}

// Suspend says goodbye for a sleep of the machine and closes the connection; work
// goes on. It returns when that is done, or when ctx ends. Dialling waits for
// [Link.Wake], for a jump of the wall clock, or for half a minute of being awake.
func (l *Link) Suspend(ctx context.Context) {
	done := make(chan struct{})
	select {
	case l.suspend <- done:
	case <-l.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Wake says that the machine is back from sleep.
func (l *Link) Wake() { signal(l.wake) }

// Run keeps the device connected until something final happens. It returns nil
// after [Link.Leave]; ErrRevoked, ErrSuperseded or a *TooOldError when the server
// ends it for good; an error about the identity, if no hello can be made of it;
// or ctx's cause, having dropped the connection without a goodbye. When it
// returns, none of its goroutines is left. Work may be: only a Leave ends it.
func (l *Link) Run(ctx context.Context) error {
	defer close(l.ended)
	defer l.departed()
	l.watch = newWallWatch(l.cfg.Now)
	l.enter(State{Phase: Starting, Cause: CauseStarted})
	if err := checkIdentity(l.cfg.Identity); err != nil {
		return l.stop(outcome{kind: final, cause: CauseBadIdentity, err: err})
	}
	cause := CauseStarted
	for {
		out := l.connect(ctx, cause)
		if out.cause == CauseSuperseded && l.byOurselves() {
			out.kind = retry
		}
		if out.kind == nap {
			cause, out = l.sleep(ctx, out)
		} else if out.kind == retry {
			cause, out = l.rest(ctx, out)
		}
		if out.kind == final {
			return l.stop(out)
		}
	}
}

func checkIdentity(id handshake.Identity) error {
	if id.Key.IsZero() {
		return errors.New("connect: there is no private key")
	}
	return handshake.CheckFits(id)
}

// outcome is how an attempt or a connection ended.
type outcome struct {
	kind  kind
	cause Cause
	err   error
	done  chan<- struct{} // of a nap: to be closed once it may begin
}

type kind int

const (
	goOn  kind = iota // dial now
	retry             // after a back-off
	nap               // after the machine's sleep
	final             // never again
)

// Error lets an outcome stand for the error of a step that an order interrupted.
func (o *outcome) Error() string { return fmt.Sprintf("interrupted: %s", o.cause) }

// connect makes one attempt and, if it succeeds, serves the connection to its end.
func (l *Link) connect(ctx context.Context, cause Cause) outcome {
	if l.mayGo() {
		return l.gone()
	}
	if !l.pathKnown && !fault.On("link: discovery is not asked") {
		l.enter(State{Phase: Discovering, Cause: CausePathUnknown})
		path, err := during(ctx, l, func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, discoverLimit)
			defer cancel()
			return l.cfg.Network.Discover(ctx)
		})
		var ordered *outcome
		switch {
		case errors.As(err, &ordered):
			return *ordered
		case errors.Is(err, ErrLaneOff):
			return outcome{kind: retry, cause: CauseLaneOff, err: err}
		case err != nil:
			l.cfg.Log.Info("discovery failed, trying the last path known", "path", l.path, "err", err)
			cause = CausePathKept
		default:
			l.path, l.pathKnown, cause = path, true, CausePathFound
			if l.cfg.OnPath != nil {
				l.cfg.OnPath(path)
			}
		}
	}
	l.enter(State{Phase: Connecting, Cause: cause})
	socket, err := during(ctx, l, func(ctx context.Context) (Socket, error) {
		ctx, cancel := context.WithTimeout(ctx, dialLimit)
		defer cancel()
		socket, err := l.cfg.Network.Dial(ctx, l.path)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no connection within %s: %w", dialLimit, err)
		}
		return socket, err
	})
	if err != nil {
		if socket != nil {
			_ = socket.CloseNow()
		}
		return l.judgeDial(err)
	}
	l.enter(State{Phase: Handshaking, Cause: CauseSocketOpen})
	if fault.On("link: a new epoch for each connection") {
		l.cfg.Identity.Epoch, _ = handshake.NewEpoch(l.cfg.Now(), l.cfg.Random)
	}
	greeted := &greeted{Socket: socket}
	ack, err := during(ctx, l, func(ctx context.Context) (*wire.HelloAck, error) {
		return handshake.Exchange(ctx, greeted, l.cfg.Identity, l.cfg.Outbox.Unacked())
	})
	if err != nil {
		_ = socket.CloseNow()
		if reject := (*handshake.RejectError)(nil); greeted.said && !errors.As(err, &reject) {
			l.unanswered = time.Now()
		}
		return l.judgeHandshake(err)
	}
	l.authFailures = 0
	l.count.connections.Add(1)
	return newConnection(l, socket, ack).serve(ctx)
}

// greeted knows whether a hello may have gone out on a socket.
type greeted struct {
	Socket
	said bool
}

func (g *greeted) Write(ctx context.Context, frame []byte) error {
	g.said = true
	return g.Socket.Write(ctx, frame)
}

// byOurselves reports whether a hello of this very process may have superseded the
// connection: one that was still under way when its socket was given up, and reached
// the server after its successor. Each is forgiven once.
func (l *Link) byOurselves() bool {
	may := !l.unanswered.IsZero() && time.Since(l.unanswered) < lateHello
	l.unanswered = time.Time{}
	return may
}

func (l *Link) judgeDial(err error) outcome {
	var (
		ordered *outcome
		refused *UpgradeError
	)
	switch {
	case errors.As(err, &ordered):
		return *ordered
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		l.pathKnown = false
		return outcome{kind: retry, cause: CauseUpgradeMissing, err: err}
	case errors.As(err, &refused):
		return outcome{kind: retry, cause: CauseUpgradeRefused, err: err}
	}
	return outcome{kind: retry, cause: CauseDialFailed, err: err}
}

func (l *Link) judgeHandshake(err error) outcome {
	var (
		ordered *outcome
		reject  *handshake.RejectError
		older   *handshake.ServerVersionError
	)
	out := outcome{kind: retry, cause: CauseHandshakeFailed, err: err}
	switch {
	case errors.As(err, &ordered):
		return *ordered
	case errors.As(err, &older):
		out.cause = CauseServerTooOld
	case errors.Is(err, handshake.ErrNoChallenge):
		out.cause = CauseNoChallenge
	case errors.Is(err, handshake.ErrNoAnswer):
		out.cause = CauseNoAnswer
	case errors.As(err, &reject):
		out = l.judgeReject(reject)
	}
	if out.cause != CauseAuthFailed && out.cause != CauseEnrollmentGone {
		l.authFailures = 0
	}
	return out
}

func (l *Link) judgeReject(reject *handshake.RejectError) outcome {
	if fault.On("link: a final reject is tried again") {
		return outcome{kind: retry, cause: CauseRejectUnknown, err: reject}
	}
	if fault.On("link: every reject is final") {
		return outcome{kind: final, cause: CauseRejectUnknown, err: reject}
	}
	switch reject.Code {
	case wire.RejectRevoked:
		return outcome{kind: final, cause: CauseRevoked, err: ErrRevoked}
	case wire.RejectProtocolVersionUnsupported:
		return outcome{kind: final, cause: CauseTooOld, err: &TooOldError{Min: reject.MinProtocolVersion}}
	case wire.RejectAuthFailed:
		l.authFailures++
		if l.authFailures >= doubtAfter {
			return outcome{kind: retry, cause: CauseEnrollmentGone, err: reject}
		}
		return outcome{kind: retry, cause: CauseAuthFailed, err: reject}
	case wire.RejectDraining:
		return outcome{kind: retry, cause: CauseDraining, err: reject}
	case wire.RejectAlreadyConnected:
		return outcome{kind: retry, cause: CauseConnected, err: reject}
	}
	return outcome{kind: retry, cause: CauseRejectUnknown, err: reject}
}

// during runs one step of an attempt and obeys orders meanwhile. If an order ended
// the step, the error is an *outcome; the value is then what the step made of it.
func during[T any](ctx context.Context, l *Link, step func(context.Context) (T, error)) (T, error) {
	stepCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := step(stepCtx)
		answers <- answer{value, err}
	}()
	interrupt := func(out outcome) (T, error) {
		cancel()
		return (<-answers).value, &out
	}
	for {
		select {
		case a := <-answers:
			if ctx.Err() != nil {
				return a.value, l.stoppedNow(ctx)
			}
			return a.value, a.err
		case <-ctx.Done():
			return interrupt(*l.stoppedNow(ctx))
		case done := <-l.suspend:
			return interrupt(outcome{kind: nap, cause: CauseSuspend, done: done})
		case <-l.wake:
		case <-l.ordered():
			l.depart(ctx)
		case <-l.departure.settles():
			l.departure.settle()
		case <-l.departure.late():
			l.departure.giveUp()
		}
		if l.mayGo() {
			return interrupt(l.gone())
		}
	}
}

func (l *Link) stoppedNow(ctx context.Context) *outcome {
	return &outcome{kind: final, cause: CauseStoppedAtOne, err: context.Cause(ctx)}
}

// rest waits out the back-off. The cause it returns is of the next attempt.
func (l *Link) rest(ctx context.Context, why outcome) (Cause, outcome) {
	if fault.On("link: the back-off does not grow") {
		l.backOff.reset()
	}
	wait := l.backOff.next()
	if fault.On("link: no back-off") {
		wait = time.Millisecond
	}
	l.enter(State{Phase: BackingOff, Cause: why.cause, Err: why.err, Wait: wait})
	began := time.Now()
	due := time.NewTimer(wait)
	defer due.Stop()
	look := time.NewTicker(pulse)
	defer look.Stop()
	cause := CauseRetryDue
	woke := func() {
		// The schedule was for a network of before the sleep.
		l.backOff.reset()
		cause = CauseWoke
		due.Reset(backOffFirst/2 - min(time.Since(began), backOffFirst/2))
	}
	for {
		select {
		case <-due.C:
			return cause, outcome{kind: goOn}
		case <-ctx.Done():
			return "", *l.stoppedNow(ctx)
		case <-look.C:
			if l.watch.jumped() {
				woke()
			}
		case <-l.wake:
			woke()
		case done := <-l.suspend:
			return l.sleep(ctx, outcome{kind: nap, cause: CauseSuspend, done: done})
		case <-l.ordered():
			l.depart(ctx)
		case <-l.departure.settles():
			l.departure.settle()
		case <-l.departure.late():
			l.departure.giveUp()
		}
		if l.mayGo() {
			return "", l.gone()
		}
	}
}

// sleep waits for the machine to come back.
func (l *Link) sleep(ctx context.Context, why outcome) (Cause, outcome) {
	l.enter(State{Phase: Sleeping, Cause: why.cause})
	l.watch.jumped() // from here on
	close(why.done)
	l.backOff.reset()
	if l.departure != nil {
		// The drain's time runs on, and what is finished still has to be told.
		return CauseWoke, outcome{kind: goOn}
	}
	limit := time.NewTimer(napLimit)
	defer limit.Stop()
	look := time.NewTicker(pulse)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", *l.stoppedNow(ctx)
		case <-l.wake:
			return CauseWoke, outcome{kind: goOn}
		case <-limit.C:
			return CauseWoke, outcome{kind: goOn}
		case <-look.C:
			if l.watch.jumped() {
				return CauseWoke, outcome{kind: goOn}
			}
		case done := <-l.suspend:
			close(done)
		case <-l.ordered():
			l.depart(ctx)
			if l.mayGo() {
				return "", l.gone()
			}
			return CauseWoke, outcome{kind: goOn} // what is finished still has to be told
		}
	}
}

// enter makes a change of state known.
func (l *Link) enter(s State) {
	s.Since = l.cfg.Now()
	s.Attempt = l.backOff.attempts
	attrs := []any{"phase", string(s.Phase), "cause", string(s.Cause)}
	if s.Gen != "" {
		attrs = append(attrs, "gen", string(s.Gen))
	}
	if s.Wait > 0 {
		attrs = append(attrs, "wait", s.Wait.Round(time.Millisecond), "attempt", s.Attempt)
	}
	if len(s.Stuck) > 0 {
		attrs = append(attrs, "stuck", s.Stuck)
	}
	if s.Err != nil {
		attrs = append(attrs, "err", s.Err)
	}
	level := slog.LevelInfo
	if s.Phase == BackingOff || len(s.Stuck) > 0 {
		level = slog.LevelWarn
	}
	l.cfg.Log.Log(context.Background(), level, "link", attrs...)
	if l.cfg.OnState != nil {
		l.cfg.OnState(s)
	}
}

func (l *Link) stop(out outcome) error {
	l.enter(State{Phase: Stopped, Cause: out.cause, Err: out.err})
	return out.err
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
