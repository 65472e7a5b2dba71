package instructions

import (
	"context"
	"errors"

	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// Files returns the handlers of all kinds that look at, read or write files.
func Files(l *files.Layer) map[wire.Kind]Handler {
	return map[wire.Kind]Handler{
		wire.KindReadTextFile:       readFile(l),
		wire.KindReadTextLines:      readLines(l),
		wire.KindReadBinaryFile:     readFile(l),
		wire.KindWriteFile:          writeWith(l, replaceFile),
		wire.KindWriteFileExclusive: writeWith(l, createFile),
		wire.KindWriteFileGuarded:   writeWith(l, guardFile),
		wire.KindAppendFile:         writeWith(l, appendFile),
		wire.KindFileInfo:           fileInfo(l),
		wire.KindListDir:            listDir(l),
		wire.KindCanonicalPath:      canonicalPath(l),
		wire.KindExists:             exists(l),
		wire.KindReadLink:           readLink(l),
		wire.KindCreateDir:          createDir(l),
		wire.KindRemove:             remove(l),
		wire.KindCreateTempDir:      createTempDir(l),
		wire.KindCreateTempFile:     createTempFile(l),
	}
}

// fileFailed is the outcome of file work that failed or was stopped.
func fileFailed(ctx context.Context, c *Call, err error) wire.Outcome {
	if e, ok := errors.AsType[*files.Error](err); ok {
		return wire.Failf(e.Code, "%s: %v", c.In.Kind, e)
	}
	if ctx.Err() != nil {
		return c.Stopped(ctx)
	}
	return wire.Failf(wire.CodeUnknown, "%s: %v", c.In.Kind, err)
}
