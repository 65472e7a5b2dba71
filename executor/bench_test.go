package executor_test

import (
	"testing"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// benchHost is an executor with real commands on a reference server on loopback.
func benchHost(b *testing.B) *host {
	b.Helper()
	dir, workspace := workspaceOf(b)
	h := newHost(b, refserver.Config{}, workspace)
	c, err := realConfig(h.url, h.device, dir, workspace)
	if err != nil {
		b.Fatal(err)
	}
	x := executor.New(c)
	ended := make(chan error, 1)
	go func() { ended <- x.Run(b.Context()) }()
	b.Cleanup(func() {
		x.StopNow()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	activate(b, h.Server, h.device)
	return h
}

func (h *host) bench(b *testing.B, text string) {
	b.Helper()
	call, err := h.Dispatch(b.Context(), h.device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: text},
		TimeoutMs: time.Hour.Milliseconds(), AckDelivered: true, Deliver: func(wire.ChunkKind, []byte) error { return nil }})
	if err != nil {
		b.Fatal(err)
	}
	if how := settle(b, call); how.Outcome != wire.Outcome(wire.ExecOutcome{}) {
		b.Fatalf("settled %+v", how)
	}
}

// BenchmarkOutput is a command's output through pipe, outbox, socket and server.
func BenchmarkOutput(b *testing.B) {
	h := benchHost(b)
	b.SetBytes(64 << 20)
	for b.Loop() {
		h.bench(b, "head -c 67108864 /dev/zero")
	}
}

// BenchmarkCommand is the round trip of a command that does nothing.
func BenchmarkCommand(b *testing.B) {
	h := benchHost(b)
	for b.Loop() {
		h.bench(b, "true")
	}
}
