package instructions

import (
	"context"
	"errors"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// landing is how content that is whole comes to its place.
type landing struct {
	// needsExpect: the arguments must say what is expected.
	needsExpect bool
	// keepsOpen: the content is read again, so it is not flushed beforehand.
	keepsOpen bool
	draft     func(*files.Layer, wire.WriteArgs) (*files.Draft, error)
	place     func(context.Context, *files.Draft, wire.WriteArgs) (wire.Outcome, error)
}

var (
	replaceFile = landing{draft: anyDraft, place: func(ctx context.Context, d *files.Draft, _ wire.WriteArgs) (wire.Outcome, error) {
		return receipt(d.Replace(ctx))
	}}
	createFile = landing{draft: newDraft, place: func(ctx context.Context, d *files.Draft, _ wire.WriteArgs) (wire.Outcome, error) {
		return receipt(d.Create(ctx))
	}}
	guardFile = landing{needsExpect: true, draft: guardedDraft, place: func(ctx context.Context, d *files.Draft, a wire.WriteArgs) (wire.Outcome, error) {
		return receipt(d.Guarded(ctx, *a.Expect))
	}}
	appendFile = landing{keepsOpen: true, draft: anyDraft, place: func(ctx context.Context, d *files.Draft, _ wire.WriteArgs) (wire.Outcome, error) {
		if fault.On("instructions: an append replaces") {
			_, err := d.Replace(ctx)
			return wire.VoidOutcome{}, err
		}
		return wire.VoidOutcome{}, d.Append(ctx)
	}}
)

func anyDraft(l *files.Layer, a wire.WriteArgs) (*files.Draft, error) { return l.Draft(a.Path) }
func newDraft(l *files.Layer, a wire.WriteArgs) (*files.Draft, error) { return l.DraftNew(a.Path) }
func guardedDraft(l *files.Layer, a wire.WriteArgs) (*files.Draft, error) {
	return l.DraftGuarded(a.Path, *a.Expect)
}

func receipt(r files.Receipt, err error) (wire.Outcome, error) {
	return wire.WriteOutcome{CanonicalPath: r.Path, Inode: r.FileID, Created: r.Created}, err
}

// writeWith receives the content into a draft beside its target, checks it, and
// lets it land in one step (§3.4). The instruction has begun only when the step
// does: before it nothing can be seen, and after a failure nothing is left.
func writeWith(l *files.Layer, to landing) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		defer c.Content.Close()
		args := c.Args.(wire.WriteArgs)
		if to.needsExpect && args.Expect == nil {
			return wire.Failf(wire.CodeInvalid, "%s: %q: a guarded write must say what it expects", c.In.Kind, args.Path)
		}
		d, err := to.draft(l, args)
		if err != nil {
			return fileFailed(ctx, c, err)
		}
		defer d.Discard()
		if err := receive(ctx, c.Content, newAssembly(args, d)); err != nil {
			return contentFailed(ctx, c, args.Path, err)
		}
		if !to.keepsOpen {
			if err := d.Flush(); err != nil {
				return fileFailed(ctx, c, err)
			}
		}
		if err := c.Begin(ctx); err != nil {
			return c.Stopped(ctx)
		}
		o, err := to.place(ctx, d, args)
		if err != nil {
			return fileFailed(ctx, c, err)
		}
		return o
	}
}

// receive takes frames until the content is whole.
func receive(ctx context.Context, from *Content, a *assembly) error {
	for {
		p, err := from.Next(ctx)
		if err != nil {
			return err
		}
		if whole, err := a.take(p); whole || err != nil {
			return err
		}
	}
}

func contentFailed(ctx context.Context, c *Call, path string, err error) wire.Outcome {
	if e, ok := errors.AsType[sequenceError](err); ok {
		return wire.Failf(wire.CodeInvalid, "%s: %q: nothing was written: %v", c.In.Kind, path, e)
	}
	if errors.Is(err, ErrContentCut) || errors.Is(err, ErrContentStalled) {
		return wire.Failf(wire.CodeTargetUnavailable, "%s: %q: nothing was written: %v", c.In.Kind, path, err)
	}
	return fileFailed(ctx, c, err)
}
