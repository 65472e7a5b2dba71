package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
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
executors. Any credential is good for enrolling with it. It is as strict as the
protocol lets a server be. What it has to object to is logged at once, and told
at the end.

Each line on stdin is sent to the device: as a command (exec), or, if it begins
with {, as what it says in JSON:

  {"kind":"stat","args":{"path":"/tmp"}}
      an instruction; also with cwd, shellEnv, rootSessionId and timeoutMs
      (else 60000)
  {"kind":"writeFile","args":{"path":"/tmp/x"},"content":"text"}
      contentLen and sha256 are filled in where they are missing; for bytes
      that are no text, contentBase64
  {"cancel":"ID"}
      cancel the instruction
  {"server":"drain"}
      what the server does by itself: drain, restart, drop (the connection),
      revoke, supersede

args go as they are, also if they are wrong. The first line waits until a device
is there; with several, say which one with "deviceId".

It ends when its input does and everything is answered, or at an interrupt; with
no line at all, as from /dev/null, only then. Exit codes: 0; 1 if the server had
to object to anything, or a line could not be sent.`,
		Example: `  sema device refserver -v --listen 127.0.0.1:8080
  printf '%s\n' 'uname -a' '{"kind":"listDir","args":{"path":"/"}}' |
    sema device refserver --json --listen 127.0.0.1:8080`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.refserver(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "the `ADDRESS` to listen on; port 0: a free one")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the frames going by: kinds, sizes and numbers, never content")
	jsonFlag(c, &f.json)
	return c
}

// session is one run of the reference server with what is told to it and by it.
type session struct {
	server *refserver.Server
	report func(event)
	given  map[string]*refserver.Call // not known to be settled; obey's alone
	calls  sync.WaitGroup             // each is waited for by a goroutine

	once    sync.Once
	arrived chan struct{} // closed when the first device is active
}

func (a *app) refserver(ctx context.Context, f refserverFlags) error {
	ctx, stop := signal.NotifyContext(ctx, interrupts()...)
	defer stop()
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", f.listen, err)
	}
	s := &session{report: a.reporter(f.json), given: map[string]*refserver.Call{}, arrived: make(chan struct{})}
	var trace func(refserver.Direction, refserver.Frame, []byte)
	if f.verbose {
		trace = newFrameTrace(a.stderr, a.now).show
	}
	s.server = refserver.New(refserver.Config{Now: a.now, Rand: a.random, Log: a.benchLog(), Trace: func(dir refserver.Direction, frame refserver.Frame, raw []byte) {
		if trace != nil {
			trace(dir, frame, raw)
		}
		s.watch(dir, frame)
	}})
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.server.Serve(listener) }) // ends with Close
	s.report(event{Event: "listening", Server: "http://" + listener.Addr().String()})

	lines, refused, err := s.obey(ctx, readLines(a.stdin))
	if err == nil && lines > 0 {
		s.settled(ctx)
	} else if err == nil {
		<-ctx.Done()
	}
	err = errors.Join(err, s.server.Close())
	serving.Wait()
	s.calls.Wait()
	objections := s.server.Violations()
	for _, v := range objections {
		s.report(event{Event: "violation", Reason: v.Reason, Message: shown(v.String()), DeviceID: v.DeviceID, InstructionID: v.InstructionID})
	}
	switch {
	case err != nil:
		return err
	case len(objections) > 0 || refused > 0:
		return exitWith(exitUnexpected, nil)
	}
	return nil
}

// watch tells of devices that come and leave.
func (s *session) watch(dir refserver.Direction, f refserver.Frame) {
	if dir != refserver.FromDevice || f.Refused != "" {
		return
	}
	switch f.Type {
	case "generationAck":
		// The server has not admitted it yet; who looks for the device waits for that.
		s.report(event{Event: "connected", DeviceID: f.DeviceID, Gen: f.Gen})
		s.once.Do(func() { close(s.arrived) })
	case "goodbye":
		s.report(event{Event: "goodbye", DeviceID: f.DeviceID, Reason: refserver.Reason(f.Kind)})
	}
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
			if err := s.do(ctx, l.text); err != nil && ctx.Err() == nil {
				refused++
				s.report(event{Event: "refused", Line: lines, Message: err.Error()})
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

type line struct {
	text []byte
	err  error
}

// maxLine is the most bytes a line may have: content is in it.
const maxLine = 64 << 20

// readLines passes on each line of r that is not empty. A read of a terminal
// cannot be interrupted: the goroutine may last as long as the process.
func readLines(r io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			if text := scanner.Text(); text != "" {
				lines <- line{text: []byte(text)}
			}
		}
		if err := scanner.Err(); err != nil {
			lines <- line{err: err}
		}
	}()
	return lines
}
