package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/refserver"
)

type refserverFlags struct {
	listen  string
	verbose bool
	json    bool
}

func newRefserver(a *app) *cobra.Command {
	var f refserverFlags
	c := &cobra.Command{
		Use:   "refserver",
		Short: "Run the reference server, for those who write executors",
		Long: `Run the protocol's reference server on this machine, for those who write
executors. It is as strict as the protocol lets a server be, and tells at once
what it has to object to. Any credential is good for enrolling with it. It
forgets its devices when it ends: enroll again after that.

Each line on stdin is sent to the device: as a command (exec), or, if it begins
with {, as what it says in JSON:

  {"kind":"fileInfo","args":{"path":"/tmp"}}
      an instruction of any kind; also with cwd, shellEnv, rootSessionId and
      timeoutMs (else 60000)
  {"kind":"writeFile","args":{"path":"/tmp/x"},"content":"text"}
      contentLen and sha256 are filled in where they are missing; for bytes
      that are no text, contentBase64
  {"cancel":"ID"}
      cancel the instruction
  {"server":"drop"}
      what the server does by itself: drop the connection, revoke or supersede
      the device, drain (all connections, and take none), or restart (which
      also ends that)

The members of args go as they are, also if they are wrong. With "deviceId", a
line is for that device, and is answered at once if it is away. Without, it is
for the one that is connected, and waits, with all lines after it, until one is.

The input may come from a program; with --json it gets a line of JSON for each
event (see 'sema help json'). The server ends when its input does and everything
is answered, or at an interrupt; with no line at all, as from /dev/null, only
then. Exit codes: 0; 1 if it had to object to anything, if a line could not be
done, or if its output could not be written.`,
		Example: `  sema device refserver -v --listen 127.0.0.1:8080
  printf '%s\n' 'uname -a' '{"kind":"listDir","args":{"path":"/"}}' |
    sema device refserver --json --listen 127.0.0.1:8080`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.refserver(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "the `ADDRESS` to listen on, as HOST:PORT; port 0: a free one")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the frames going by: kinds, sizes and numbers, never content")
	flags.BoolVar(&f.json, "json", false, "print a line of JSON for each event")
	return c
}

// session is one run of the reference server with what is told to it and by it.
type session struct {
	server   *refserver.Server
	report   *reporter
	presence presence

	// obey's alone
	given    map[string]*refserver.Call // not known to be settled
	draining bool

	calls sync.WaitGroup // each is waited for by a goroutine
}

func (a *app) refserver(ctx context.Context, f refserverFlags) error {
	listener, err := listenAt(f.listen)
	if err != nil {
		return err
	}
	defer catchBrokenPipes()()
	ctx, stop := untilInterrupted(ctx, interrupts()...)
	defer stop()
	out := newOutlet(ctx, a.stdout, stop)
	s := &session{report: &reporter{app: a, out: out, json: f.json}, given: map[string]*refserver.Call{}}
	s.presence.report = s.report
	objections := &objections{report: s.report}
	trace := func(refserver.Direction, refserver.Frame, []byte) {}
	if f.verbose {
		trace = newFrameTrace(out.later(a.stderr), a.now).show
	}
	s.server = refserver.New(refserver.Config{
		Now: a.now, Rand: a.random,
		Log: slog.New(slog.NewTextHandler(out.later(a.stderr), &slog.HandlerOptions{Level: slog.LevelError})), // its objections are told
		Trace: func(dir refserver.Direction, frame refserver.Frame, raw []byte) {
			trace(dir, frame, raw)
			s.presence.watch(dir, frame)
		},
	})
	var all sync.WaitGroup
	all.Go(func() { _ = s.server.Serve(listener) }) // these end with Close
	all.Go(func() { s.presence.follow(s.server) })
	all.Go(func() { objections.follow(s.server) })
	s.report.listening(listener.Addr())

	lines, refused, err := s.obey(ctx, readLines(a.stdin))
	if err == nil && lines > 0 {
		s.settled(ctx)
	} else if err == nil {
		<-ctx.Done()
	}
	err = errors.Join(err, s.server.Close())
	all.Wait()
	s.calls.Wait()
	objections.tell(s.server) // what came of closing it
	if broken := out.end(); broken != nil {
		return unread(broken)
	}
	switch {
	case err != nil:
		return err
	case objections.told > 0 || refused > 0:
		return exitWith(exitUnexpected, nil)
	}
	return nil
}

// obey does what the lines say until they or the context end. It returns how many
// there were and how many of them could not be done.
func (s *session) obey(ctx context.Context, input <-chan line) (lines, refused int, err error) {
	for {
		select {
		case <-ctx.Done():
			return lines, refused, nil
		case l, more := <-input:
			if !more {
				return lines, refused, nil
			}
			if l.err != nil {
				return lines, refused, fmt.Errorf("read stdin: %w", l.err)
			}
			lines++
			if err := s.do(ctx, l); err != nil && ctx.Err() == nil {
				refused++
				s.report.tell(event{Event: "refused", Line: l.number, Message: err.Error()})
			}
		}
	}
}

// settled waits until every instruction is.
func (s *session) settled(ctx context.Context) {
	all := make(chan struct{})
	go func() { // ends with the calls, which the server's end ends too
		s.calls.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
	}
}
