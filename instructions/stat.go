package instructions

import (
	"context"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// The governance reads and their kin: each answers with exactly what was asked for
// (§3.3) or fails with a real reason (§6.5).

func fileInfo(l *files.Layer) Handler {
	return look(func(_ context.Context, path string) (wire.StatOutcome, error) {
		info, err := l.Info(path)
		return wire.StatOutcome{Info: &info}, err
	})
}

func listDir(l *files.Layer) Handler {
	return look(func(ctx context.Context, path string) (wire.StatOutcome, error) {
		entries, err := l.List(ctx, path)
		return wire.StatOutcome{Entries: entries}, err
	})
}

func canonicalPath(l *files.Layer) Handler {
	return look(func(_ context.Context, path string) (wire.StatOutcome, error) {
		real, err := l.Canonical(path)
		return wire.StatOutcome{CanonicalPath: real}, err
	})
}

func exists(l *files.Layer) Handler {
	return look(func(_ context.Context, path string) (wire.StatOutcome, error) {
		there, err := l.Exists(path)
		return wire.StatOutcome{ExistsValue: &there}, err
	})
}

func readLink(l *files.Layer) Handler {
	return look(func(_ context.Context, path string) (wire.StatOutcome, error) {
		target, err := l.Readlink(path)
		return wire.StatOutcome{LinkTarget: &target}, err
	})
}

func look(at func(ctx context.Context, path string) (wire.StatOutcome, error)) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		seen, err := at(ctx, c.Args.(wire.PathArgs).Path)
		if err != nil {
			return fileFailed(ctx, c, err)
		}
		return seen
	}
}
