package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// do does what one line says.
func (s *session) do(ctx context.Context, text []byte) error {
	r, err := parseRequest(text)
	if err != nil {
		return err
	}
	if r.Cancel != "" {
		call := s.given[r.Cancel]
		if call == nil {
			return fmt.Errorf("cancel: no instruction %q is under way", r.Cancel)
		}
		call.Cancel()
		return nil
	}
	switch r.Server { // what is about no device
	case "drain":
		s.server.Drain()
		return nil
	case "restart":
		s.server.Restart()
		return nil
	}
	if r.DeviceID == "" {
		if r.DeviceID, err = s.theDevice(ctx); err != nil {
			return err
		}
	}
	switch r.Server {
	case "":
		return s.send(ctx, r)
	case "drop":
		s.server.Drop(r.DeviceID)
	case "revoke":
		s.server.Revoke(r.DeviceID)
	case "supersede":
		s.server.Supersede(r.DeviceID)
	default:
		return fmt.Errorf(`"server" is drain, restart, drop, revoke or supersede, not %q`, r.Server)
	}
	return nil
}

// theDevice is the one that is meant where none is named. It waits for the first to
// come, and for it to come back.
func (s *session) theDevice(ctx context.Context) (string, error) {
	select {
	case <-s.arrived:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	devices := s.server.Devices()
	if len(devices) > 1 {
		return "", fmt.Errorf(`%d devices are enrolled: name one with "deviceId"`, len(devices))
	}
	return devices[0], s.server.WaitFor(ctx, devices[0], func(st refserver.DeviceState) bool { return st.Active || st.Revoked })
}

// send gives an instruction to its device and reports what comes of it.
func (s *session) send(ctx context.Context, r *request) error {
	id := make(chan string, 1) // output may come before Dispatch has returned
	known := ""
	call, err := s.server.Dispatch(ctx, r.DeviceID, refserver.Dispatch{
		Kind: r.Kind, RawArgs: r.Args, Cwd: r.Cwd, ShellEnv: r.ShellEnv, TimeoutMs: r.TimeoutMs, RootSessionID: r.RootSessionID,
		Content: r.ContentBase64, AckDelivered: true,
		Deliver: func(kind wire.ChunkKind, data []byte) error {
			if known == "" {
				known = <-id
			}
			s.report(event{Event: "output", InstructionID: known, Chunk: kind, data: data})
			return nil
		},
	})
	if errors.Is(err, refserver.ErrUnknownDevice) {
		return fmt.Errorf("no device %q is enrolled", r.DeviceID)
	}
	if err != nil {
		return err
	}
	s.report(event{Event: "sent", InstructionID: call.ID(), DeviceID: r.DeviceID, Kind: r.Kind})
	id <- call.ID()
	maps.DeleteFunc(s.given, func(_ string, c *refserver.Call) bool {
		select {
		case <-c.Done():
			return true
		default:
			return false
		}
	})
	s.given[call.ID()] = call
	s.calls.Go(func() {
		how, err := call.Wait(context.WithoutCancel(ctx)) // the server's end settles it at the latest
		if err != nil {
			return
		}
		outcome, err := outcomeJSON(how.Outcome)
		if err != nil {
			outcome, _ = json.Marshal(err.Error())
		}
		s.report(event{Event: "settled", InstructionID: call.ID(), Outcome: outcome, By: how.By, Bytes: how.Stream.Bytes, Reason: how.Stream.Fault})
	})
	return nil
}

// outcomeJSON is an outcome as a result frame carries it.
func outcomeJSON(o wire.Outcome) (json.RawMessage, error) {
	b, err := wire.AppendDevice(nil, &wire.Result{Gen: "1", InstructionID: "-", Outcome: o})
	if err != nil {
		return nil, err
	}
	var frame struct{ Outcome json.RawMessage }
	return frame.Outcome, errors.Join(json.Unmarshal(b, &frame))
}
