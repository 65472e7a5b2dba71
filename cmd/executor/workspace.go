package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/remedy"
)

// workspaceLimit is how long a start waits for a look at the workspace.
const workspaceLimit = time.Second

// warnWithoutWorkspace logs once why commands have no folder to run in, and what
// to do about it. It is no reason not to serve: the answers of commands say the
// same, what names other folders works, and the workspace may come, as a mount
// does that is slower than its service.
func warnWithoutWorkspace(ctx context.Context, log *slog.Logger, record *enroll.Record) {
	looked := make(chan error, 1) // nobody may be left to take it
	var info os.FileInfo
	go func() {
		var err error
		info, err = os.Stat(record.WorkspaceRoot) // never comes back where a mount is gone
		looked <- err
	}()
	limit, cancel := context.WithTimeout(ctx, workspaceLimit)
	defer cancel()
	why, run := "", "ls -ld "+remedy.Quote(record.WorkspaceRoot)
	select {
	case err := <-looked:
		var refused *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			why, run = "it is not there", "mkdir -p "+remedy.Quote(record.WorkspaceRoot)
		case errors.As(err, &refused):
			why = "it cannot be looked at: " + refused.Err.Error()
		case !info.IsDir():
			why = "it is not a folder"
		default:
			return
		}
	case <-limit.Done():
		if ctx.Err() != nil {
			return // this start was given up
		}
		why, run = "it does not answer, as on a mount that is gone", remedy.For(record.DeviceID, "doctor")
	}
	log.Warn("commands cannot run in the workspace, and fail until it is mended", "workspace", record.WorkspaceRoot, "why", why, "run", run)
}
