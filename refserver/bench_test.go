package refserver_test

import (
	"context"
	"crypto/ed25519"
	"net"
	"testing"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// BenchmarkStream is one command's output through the server over loopback
// TCP, 64 KiB chunks, read by a consumer that does nothing with it.
func BenchmarkStream(b *testing.B) {
	s := refserver.New(refserver.Config{})
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // ends with Close
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	device := s.AddDevice(refserver.DeviceRecord{PublicKey: key.Public().(ed25519.PublicKey), WorkspaceRoot: root})

	ctx := context.Background()
	ws, _, err := websocket.Dial(ctx, "ws://"+l.Addr().String()+wire.WSPath, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer ws.CloseNow()
	next := func() wire.ServerFrame {
		_, raw, err := ws.Read(ctx)
		if err != nil {
			b.Fatal(err)
		}
		f, err := wire.DecodeServer(raw)
		if err != nil {
			b.Fatal(err)
		}
		return f
	}
	c := &client{key: key, device: device}
	var buf []byte
	send := func(f wire.DeviceFrame) {
		if buf, err = wire.AppendDevice(buf[:0], f); err != nil {
			b.Fatal(err)
		}
		if err := ws.Write(ctx, websocket.MessageText, buf); err != nil {
			b.Fatal(err)
		}
	}
	send(c.hello(next().(*wire.Challenge).Nonce, epochA))
	gen := next().(*wire.HelloAck).Gen
	send(&wire.GenerationAck{Gen: gen})
	if err := s.WaitActive(ctx, device); err != nil {
		b.Fatal(err)
	}
	call, err := s.Dispatch(ctx, device, refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{},
		Deliver: func(wire.ChunkKind, []byte) error { return nil }, AckDelivered: true})
	if err != nil {
		b.Fatal(err)
	}
	next() // the instruction

	chunk := &wire.Chunk{Gen: gen, InstructionID: call.ID(), Kind: wire.ChunkStdout, Data: make([]byte, wire.MaxChunkBytes)}
	b.SetBytes(wire.MaxChunkBytes)
	b.ResetTimer()
	go func() {
		for range b.N {
			send(chunk)
			chunk.StreamSeq++
		}
	}()
	for {
		if a, ok := next().(*wire.ChunkAck); ok && a.UpToStreamSeq == int64(b.N)-1 {
			break
		}
	}
	b.StopTimer()
	if v := s.Violations(); len(v) > 0 {
		b.Fatal(v)
	}
}
