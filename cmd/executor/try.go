package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/wire"
)

// exitInterrupted is what shells report for a command that INT ended.
const exitInterrupted = 130

type tryFlags struct {
	workspace string
	timeout   time.Duration
	verbose   bool
	put       []string
	get       []string
	list      []string
}

func newTry(a *app) *cobra.Command {
	var f tryFlags
	c := &cobra.Command{
		Use:   "try [flags] [-- COMMAND…]",
		Short: "Try it all on this machine alone: no account, no network",
		Long: `Start the bundled reference server on loopback, enroll a throw-away device with
it, serve that device for real, and send COMMAND through the whole protocol as
an exec instruction. Its output comes back on stdout and stderr, its exit code
is the exit code. Several words are joined by spaces, as ssh does.

--put, --get and --ls try the file instructions, in this order and before the
command. Relative paths are taken from the workspace. Nothing of the trial
itself is left behind.

--verbose shows frames to the device as -> and frames from it as <-.

Exit codes: the command's; 130 when interrupted; 1 when an instruction failed
or was never answered.`,
		Example: "  sema device try -- 'go version && uname -s'\n" +
			"  sema device try -v --put /etc/hosts:/tmp/copy --get /tmp/copy --ls /tmp",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(f.put)+len(f.get)+len(f.list) == 0 {
				return usagef("say what to try, for example: sema device try -- 'uname -a'")
			}
			if f.timeout < time.Millisecond {
				return usagef("--timeout: %s is no time at all", f.timeout)
			}
			return a.try(c.Context(), f, strings.Join(args, " "))
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.workspace, "workspace", "", "the folder `DIR` to work in (default: the current one)")
	flags.DurationVar(&f.timeout, "timeout", time.Hour, "the `TIME` that each instruction may take")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "show the frames going by: kinds, sizes and numbers, never content")
	flags.StringArrayVar(&f.put, "put", nil, "write the file LOCAL to REMOTE, as `LOCAL:REMOTE` (repeatable)")
	flags.StringArrayVar(&f.get, "get", nil, "read the file `REMOTE` to stdout (repeatable)")
	flags.StringArrayVar(&f.list, "ls", nil, "list the folder `DIR` (repeatable)")
	return c
}

func (a *app) try(ctx context.Context, f tryFlags, command string) (err error) {
	ctx, stop := signal.NotifyContext(ctx, interrupts()...)
	defer stop()
	defer catchBrokenPipes()()
	out := newOutlet(ctx, nil, nil)
	defer out.end()
	var trace io.Writer
	if f.verbose {
		trace = out.later(a.stderr)
	}
	held := *a
	held.stdout, held.stderr = out.to(a.stdout), out.to(a.stderr)
	a = &held
	root, err := absoluteFolder(f.workspace)
	if err != nil {
		return exitWith(exitUsage, fmt.Errorf("--workspace: %w", err))
	}
	puts, err := parsePuts(f.put)
	if err != nil {
		return err
	}
	if err := f.sendable(command); err != nil {
		return err
	}
	b, err := a.startBench(ctx, root, trace)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		if stopped := b.stop(); err == nil {
			err = stopped
		}
	}()
	t := trial{app: a, bench: b, root: b.root, timeout: f.timeout}
	for _, p := range puts {
		if err := t.put(ctx, p); err != nil {
			return err
		}
	}
	for _, path := range f.get {
		if err := t.get(ctx, path); err != nil {
			return err
		}
	}
	for _, dir := range f.list {
		if err := t.list(ctx, dir); err != nil {
			return err
		}
	}
	if command == "" {
		return nil
	}
	return t.exec(ctx, command)
}

// interrupts lists the signals that end a trial. Each leaves time to clean up; a
// HUP that is ignored, as under nohup, stays so.
func interrupts() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// interrupted is what to say of err if an interrupt was the cause of it.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exitWith(exitInterrupted, nil)
	}
	return err
}

// sendable refuses what JSON would change on the way: another command would run,
// or another file be read, than the one that was named.
func (f *tryFlags) sendable(command string) error {
	for what, texts := range map[string][]string{"the command": {command}, "--put": f.put, "--get": f.get, "--ls": f.list} {
		for _, text := range texts {
			if !utf8.ValidString(text) {
				return usagef("%s: %q is not valid UTF-8, which the protocol needs", what, text)
			}
		}
	}
	return nil
}

// trial sends instructions to the device on the bench.
type trial struct {
	app     *app
	bench   *bench
	root    string
	timeout time.Duration
}

// remote resolves a path as the server of a session would: absolute, clean, from
// the workspace.
func (t *trial) remote(path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.root, path)
	}
	return filepath.Clean(path)
}

func (t *trial) exec(ctx context.Context, command string) error {
	outcome, err := t.run(ctx, wire.KindExec, wire.ExecArgs{Command: command}, nil, func(kind wire.ChunkKind, data []byte) error {
		to := t.app.stdout
		if kind == wire.ChunkStderr {
			to = t.app.stderr
		}
		_, err := to.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if o, ok := outcome.(wire.ExecOutcome); ok && o.ExitCode != 0 {
		return exitWith(int(o.ExitCode), nil)
	}
	return nil
}

type putFile struct{ local, remote string }

// parsePuts reads LOCAL:REMOTE; the first colon divides, so a LOCAL with a colon
// in it is written with a path that has none before it, such as ./a:b.
func parsePuts(values []string) ([]putFile, error) {
	var puts []putFile
	for _, v := range values {
		local, remote, ok := strings.Cut(v, ":")
		if !ok || local == "" || remote == "" {
			return nil, usagef("--put %q: write it as LOCAL:REMOTE", v)
		}
		puts = append(puts, putFile{local, remote})
	}
	return puts, nil
}

func (t *trial) put(ctx context.Context, p putFile) error {
	content, err := os.ReadFile(p.local)
	if err != nil {
		return fmt.Errorf("--put: %w", err)
	}
	outcome, err := t.run(ctx, wire.KindWriteFile, wire.WriteArgs{Path: t.remote(p.remote)}, content, nil)
	if err != nil {
		return err
	}
	receipt, ok := outcome.(wire.WriteOutcome)
	if !ok {
		return fmt.Errorf("--put: the outcome is a %T", outcome)
	}
	how := "replaced"
	if receipt.Created != nil && *receipt.Created {
		how = "created"
	}
	fmt.Fprintf(t.app.stderr, "%s %s (%d bytes)\n", how, receipt.CanonicalPath, len(content))
	return nil
}

func (t *trial) get(ctx context.Context, path string) error {
	_, err := t.run(ctx, wire.KindReadBinaryFile, wire.PathArgs{Path: t.remote(path)}, nil, func(_ wire.ChunkKind, data []byte) error {
		_, err := t.app.stdout.Write(data)
		return err
	})
	return err
}

func (t *trial) list(ctx context.Context, dir string) error {
	outcome, err := t.run(ctx, wire.KindListDir, wire.PathArgs{Path: t.remote(dir)}, nil, nil)
	if err != nil {
		return err
	}
	listing, ok := outcome.(wire.StatOutcome)
	if !ok {
		return fmt.Errorf("--ls: the outcome is a %T", outcome)
	}
	for _, e := range listing.Entries {
		mode := "----"
		if e.Mode != nil {
			mode = fmt.Sprintf("%04o", *e.Mode)
		}
		if _, err := fmt.Fprintf(t.app.stdout, "%-7s  %s  %12d  %s  %s\n", e.Kind, mode, e.Size,
			time.UnixMilli(e.MtimeMs).Format("2006-01-02 15:04:05"), shown(filepath.Base(e.Path))); err != nil {
			return unread(err)
		}
	}
	return nil
}

// errConsumer wraps what went wrong while output was passed on.
var errConsumer = errors.New("pass the output on")

// unread is the end of a trial whose output could not be passed on.
func unread(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return exitWith(128+int(syscall.SIGPIPE), nil) // the reader has seen enough
	}
	return fmt.Errorf("%w: %w", errConsumer, err)
}

// run sends one instruction and waits for its outcome, which is a success or an
// error. An interrupt cancels it.
func (t *trial) run(ctx context.Context, kind wire.Kind, args wire.Args, content []byte, deliver func(wire.ChunkKind, []byte) error) (wire.Outcome, error) {
	settlement, err := t.bench.do(ctx, kind, args, content, t.timeout, deliver)
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	if failed := settlement.Stream.DeliverErr; failed != nil {
		return nil, interrupted(ctx, unread(failed))
	}
	switch o := settlement.Outcome.(type) {
	case wire.Failure:
		return nil, fmt.Errorf("%s: %s", o.Code, o.Message)
	case wire.CancelledOutcome:
		if ctx.Err() != nil {
			return nil, exitWith(exitInterrupted, nil)
		}
		return nil, fmt.Errorf("%s: cancelled (%s)", kind, o.State)
	}
	return settlement.Outcome, nil
}

// cleanEnvironment is what the trial's commands start from.
func cleanEnvironment() []string { return instructions.WithoutSecrets(os.Environ()) }

// benchLog is the executor's own log during a trial: troubles only.
func (a *app) benchLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
