package instructions

import (
	"context"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// readFile sends a file's bytes as they are (§3.1, §4).
func readFile(l *files.Layer) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		return read(ctx, c, l, c.Args.(wire.PathArgs).Path, (*files.File).Everything)
	}
}

// readLines sends a run of whole lines. Without a limit it sends all of them.
func readLines(l *files.Layer) Handler {
	return func(ctx context.Context, c *Call) wire.Outcome {
		args := c.Args.(wire.ReadLinesArgs)
		skip, limit := int64(0), int64(-1)
		if args.Offset != nil {
			skip = *args.Offset
		}
		if args.Limit != nil {
			limit = *args.Limit
		}
		if skip < 0 || (args.Limit != nil && limit < 0) {
			return wire.Failf(wire.CodeInvalid, "%s: offset and limit count lines and are not negative", c.In.Kind)
		}
		return read(ctx, c, l, args.Path, func(f *files.File, ctx context.Context, put func([]byte) error) error {
			return f.Lines(ctx, skip, limit, put)
		})
	}
}

func read(ctx context.Context, c *Call, l *files.Layer, path string,
	send func(*files.File, context.Context, func([]byte) error) error) wire.Outcome {
	f, err := l.Open(path)
	if err != nil {
		return fileFailed(ctx, c, err)
	}
	defer f.Close()
	err = send(f, ctx, func(b []byte) error { return c.Out.Append(ctx, wire.ChunkData, b) })
	if err != nil {
		return fileFailed(ctx, c, err)
	}
	return wire.ReadOutcome{}
}
