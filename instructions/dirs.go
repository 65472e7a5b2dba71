package instructions

import (
	"context"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// createDir makes missing folders above the path too, unless told otherwise.
func createDir(l *files.Layer) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		args := c.Args.(wire.DirArgs)
		return change(ctx, c, func() (wire.Outcome, error) {
			return wire.VoidOutcome{}, l.MakeDir(args.Path, args.Recursive == nil || *args.Recursive)
		})
	}
}

// remove leaves folders alone, unless told otherwise.
func remove(l *files.Layer) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		args := c.Args.(wire.DirArgs)
		return change(ctx, c, func() (wire.Outcome, error) {
			return wire.VoidOutcome{}, l.Remove(ctx, args.Path, args.Recursive != nil && *args.Recursive)
		})
	}
}

// tempPrefix begins temporary names for which none was asked.
const tempPrefix = "tmp-"

func createTempDir(l *files.Layer) Handler {
	return temporary(func(a wire.TempArgs) (string, error) { return l.TempDir(a.Prefix) })
}

func createTempFile(l *files.Layer) Handler {
	return temporary(func(a wire.TempArgs) (string, error) { return l.TempFile(a.Prefix, a.Suffix) })
}

func temporary(create func(wire.TempArgs) (string, error)) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		args := c.Args.(wire.TempArgs)
		if args.Prefix == "" {
			args.Prefix = tempPrefix
		}
		return change(ctx, c, func() (wire.Outcome, error) {
			path, err := create(args)
			return wire.WriteOutcome{CanonicalPath: path}, err
		})
	}
}

// change does something that the world notices.
func change(ctx context.Context, c *Call, do func() (wire.Outcome, error)) wire.Outcome {
	if err := c.Begin(ctx); err != nil {
		return c.Stopped(ctx)
	}
	o, err := do()
	if err != nil {
		return fileFailed(ctx, c, err)
	}
	return o
}
