package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/wire"
)

// deviceCommands lists what `sema device` can do.
func deviceCommands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newEnroll(a),
		newServe(a),
		newTry(a),
		newList(a),
		newStatus(a),
		newDoctor(a),
		newActivity(a),
		newService(a),
		newUnenroll(a),
		newKey(a),
		newConformance(a),
		newRefserver(a),
	}
}

// platform describes this machine and this executor to servers.
func platform() wire.Platform {
	return wire.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH, ExecutorVersion: buildVersion().Version}
}

// implemented lists every kind this executor can do: all but statBatch, which no
// server dispatches.
func implemented() []wire.Kind {
	return slices.DeleteFunc(wire.Kinds(), func(k wire.Kind) bool { return k == wire.KindStatBatch })
}

// writeFaces finds out which optional writes the file system under a workspace
// can do in one step.
func writeFaces(ctx context.Context, workspace string) ([]wire.Kind, error) {
	layer, err := files.New(files.Config{})
	if err != nil {
		return nil, err
	}
	can, err := layer.Probe(ctx, workspace)
	if err != nil {
		return nil, fmt.Errorf("try the workspace's file system: %w", err)
	}
	kinds := []wire.Kind{}
	if can.Exclusive {
		kinds = append(kinds, wire.KindWriteFileExclusive)
	}
	if can.Guarded {
		kinds = append(kinds, wire.KindWriteFileGuarded)
	}
	return kinds, nil
}

// chosen opens the records and takes the one a command is about.
func (a *app) chosen(deviceID string) (*enroll.Home, *enroll.Record, error) {
	home, err := enroll.OpenHome(a.getenv)
	if err != nil {
		return nil, nil, err
	}
	record, err := home.Choose(deviceID)
	if err != nil {
		return nil, nil, err
	}
	return home, record, nil
}

// shortened takes the device out of the commands in text where it is the one that
// is meant anyway, which those who made the commands do not know.
func (a *app) shortened(text string) string {
	_, meant, err := a.chosen("")
	if err != nil {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i], _ = strings.CutSuffix(line, " --device "+meant.DeviceID)
	}
	return strings.Join(lines, "\n")
}

// named is how a command has to name a device: not at all where it is the one
// that is meant anyway.
func (a *app) named(deviceID string) string {
	if _, meant, err := a.chosen(""); err == nil && meant.DeviceID == deviceID {
		return ""
	}
	return deviceID
}
