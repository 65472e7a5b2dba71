package main

import (
	"context"
	"maps"
	"sync"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// presence tells of devices that come and leave.
type presence struct {
	report *reporter

	mu   sync.Mutex
	here map[string]wire.Gen // the generation of each device that was told to be connected
}

// watch sees a device come, and say that it leaves.
func (p *presence) watch(dir refserver.Direction, f refserver.Frame) {
	if dir != refserver.FromDevice || f.Refused != "" {
		return
	}
	switch f.Type {
	case "generationAck":
		p.comes(f.DeviceID, f.Gen)
	case "goodbye":
		p.report.tell(event{Event: "goodbye", DeviceID: f.DeviceID, Reason: refserver.Reason(f.Kind)})
	}
}

func (p *presence) comes(deviceID string, gen wire.Gen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch before, here := p.here[deviceID]; {
	case here && before == gen:
		return // said twice, which is an objection
	case here:
		p.report.tell(event{Event: "disconnected", DeviceID: deviceID, Gen: before})
	case p.here == nil:
		p.here = map[string]wire.Gen{}
	}
	p.here[deviceID] = gen
	p.report.tell(event{Event: "connected", DeviceID: deviceID, Gen: gen})
}

// follow sees connections end, until the server does.
func (p *presence) follow(server *refserver.Server) {
	_ = server.WaitUntil(context.Background(), func() bool {
		p.mu.Lock()
		here := maps.Clone(p.here)
		p.mu.Unlock()
		for id, gen := range here {
			if now := server.State(id); !now.Connected || now.Gen != gen {
				p.leaves(id, gen)
			}
		}
		return false
	})
}

func (p *presence) leaves(deviceID string, gen wire.Gen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.here[deviceID] == gen {
		delete(p.here, deviceID)
		p.report.tell(event{Event: "disconnected", DeviceID: deviceID, Gen: gen})
	}
}
