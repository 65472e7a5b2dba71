package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// do does what one line says.
func (s *session) do(ctx context.Context, l line) error {
	if l.long {
		return fmt.Errorf("the line has more than %d bytes", maxLine)
	}
	r, err := parseRequest(l.text)
	if err != nil {
		return err
	}
	switch { // what is about no device
	case r.Cancel != "":
		call := s.given[r.Cancel]
		if call == nil {
			return fmt.Errorf("no instruction %q is under way", r.Cancel)
		}
		call.Cancel()
		return nil
	case r.Server == "drain":
		s.server.Drain()
		s.draining = true
		return nil
	case r.Server == "restart":
		s.server.Restart()
		s.draining = false
		return nil
	}
	if r.DeviceID == "" {
		if r.DeviceID, err = s.theDevice(ctx, l.number); err != nil {
			return err
		}
	}
	device := s.server.State(r.DeviceID)
	switch {
	case !device.Registered:
		return fmt.Errorf("no device %q is enrolled", r.DeviceID)
	case device.Revoked:
		return fmt.Errorf("device %s is revoked", r.DeviceID)
	case r.Server == "":
		return s.send(ctx, l.number, r)
	case r.Server == "revoke":
		s.server.Revoke(r.DeviceID)
		return nil
	case !device.Connected:
		return fmt.Errorf("device %s is not connected", r.DeviceID)
	case r.Server == "supersede":
		s.server.Supersede(r.DeviceID)
		return nil
	}
	s.server.Drop(r.DeviceID)
	return s.server.WaitFor(ctx, r.DeviceID, func(now refserver.DeviceState) bool { return !now.Connected || now.Gen != device.Gen })
}

// theDevice is the one that is meant where none is named: the one that is
// connected. It waits for one to come.
func (s *session) theDevice(ctx context.Context, line int) (string, error) {
	var there []string
	look := func() bool {
		there = slices.DeleteFunc(s.server.Devices(), func(id string) bool { return !s.server.State(id).Active })
		return len(there) > 0
	}
	if !look() {
		if s.draining {
			return "", errors.New(`the server is draining, so no device comes; {"server":"restart"} ends that`)
		}
		s.report.tell(event{Event: "waiting", Line: line})
		if err := s.server.WaitUntil(ctx, look); err != nil {
			return "", err
		}
	}
	if len(there) > 1 {
		return "", fmt.Errorf(`%d devices are connected, so name one with "deviceId": %s`, len(there), strings.Join(there, ", "))
	}
	return there[0], nil
}

// send gives an instruction to its device and reports what comes of it.
func (s *session) send(ctx context.Context, line int, r *request) error {
	id := make(chan string, 1) // output may come before Dispatch has returned
	known := ""
	call, err := s.server.Dispatch(ctx, r.DeviceID, refserver.Dispatch{
		Kind: r.Kind, RawArgs: r.Args, Cwd: r.Cwd, ShellEnv: r.ShellEnv, TimeoutMs: r.timeoutMs(), RootSessionID: r.RootSessionID,
		Content: r.ContentBase64, AckDelivered: true,
		Deliver: func(kind wire.ChunkKind, data []byte) error {
			if known == "" {
				known = <-id
			}
			return s.report.output(event{Event: "output", InstructionID: known, Chunk: kind, data: data})
		},
	})
	if err != nil {
		return unsent(err)
	}
	s.report.tell(event{Event: "sent", Line: line, InstructionID: call.ID(), DeviceID: r.DeviceID, Kind: r.Kind})
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
		s.report.tell(event{Event: "settled", InstructionID: call.ID(), Outcome: outcome, By: how.By, Bytes: how.Stream.Bytes, Reason: how.Stream.Fault})
	})
	return nil
}

// unsent says why an instruction does not go into a frame.
func unsent(err error) error {
	if inner := errors.Unwrap(err); inner != nil { // without where it was to go
		err = inner
	}
	return fmt.Errorf("it cannot be sent: %s", strings.TrimPrefix(err.Error(), "encode instruction: "))
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
