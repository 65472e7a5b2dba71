package refserver

import (
	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/wire"
)

// outgoing is one queued message: a frame, or raw bytes someone ordered.
type outgoing struct {
	frame  wire.ServerFrame
	raw    []byte
	binary bool
}

// payloadRun is the content of one write on its way (§3.4). Runs of several
// instructions take turns, one slice each.
type payloadRun struct {
	call  *Call
	begun bool
	at    int // bytes sent
}

// send queues a frame. Nothing follows the end of a connection.
func (k *socket) send(f wire.ServerFrame) {
	if k.closing {
		return
	}
	k.out = append(k.out, outgoing{frame: f})
	k.poke()
}

// ack queues the watermark of a stream; one that is still queued is raised.
func (k *socket) ack(id string, upTo int64) {
	if k.closing {
		return
	}
	if f := k.acks[id]; f != nil {
		f.UpToStreamSeq = upTo
		return
	}
	f := &wire.ChunkAck{Gen: k.gen, InstructionID: id, UpToStreamSeq: upTo}
	k.acks[id] = f
	k.send(f)
}

// release queues a resultAck, unless one for the instruction is queued: a device that sends
// its result over and over and never reads cannot make the queue grow.
func (k *socket) release(id string) {
	if k.closing || k.releases[id] {
		return
	}
	k.releases[id] = true
	k.send(&wire.ResultAck{Gen: k.gen, InstructionID: id})
}

func (k *socket) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// writeLoop is the connection's writer; it also closes the connection.
func (k *socket) writeLoop() {
	defer k.cancel()
	var buf []byte
	for {
		o, ok, closing := k.next()
		if ok {
			var err error
			if buf, err = k.write(buf[:0], o); err != nil {
				return
			}
			continue
		}
		if closing {
			// Unblocks the reader too, at the latest after the library's
			// ten seconds, or when the context ends.
			_ = k.ws.Close(k.closeCode, "")
			return
		}
		select {
		case <-k.wake:
		case <-k.ctx.Done():
			return
		}
	}
}

// next takes the next message: the queue first, then a slice of content.
func (k *socket) next() (o outgoing, ok, closing bool) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if len(k.out) > 0 {
		o := k.out[0]
		k.out[0] = outgoing{}
		k.out = k.out[1:]
		switch f := o.frame.(type) {
		case *wire.ChunkAck:
			delete(k.acks, f.InstructionID)
		case *wire.ResultAck:
			delete(k.releases, f.InstructionID)
		}
		return o, true, k.closing
	}
	if k.closing || len(k.payloads) == 0 {
		return outgoing{}, false, k.closing
	}
	run := k.payloads[0]
	k.payloads = k.payloads[1:]
	f, more := run.next(k.gen, k.s.cfg.PayloadPart)
	if more {
		k.payloads = append(k.payloads, run)
	}
	return outgoing{frame: f}, true, false
}

func (r *payloadRun) next(gen wire.Gen, part int) (f *wire.Payload, more bool) {
	content := r.call.what.Content
	f = &wire.Payload{Gen: gen, InstructionID: r.call.id}
	switch {
	case !r.begun:
		r.begun = true
		f.Part, f.TotalLen, f.SHA256 = wire.PartBegin, int64(len(content)), r.call.digest
		return f, true
	case r.at < len(content):
		n := min(part, len(content)-r.at)
		f.Part, f.Offset, f.Data = wire.PartChunk, int64(r.at), content[r.at:r.at+n]
		r.at += n
		return f, true
	}
	f.Part, f.TotalLen, f.SHA256 = wire.PartCommit, int64(len(content)), r.call.digest
	return f, false
}

// write sends one message, with whatever fault is ordered for it.
func (k *socket) write(buf []byte, o outgoing) ([]byte, error) {
	s := k.s
	s.mu.Lock()
	order, deviceID := s.faults.Outgoing, k.deviceID()
	s.mu.Unlock()
	var a Action
	if order != nil && o.frame != nil {
		a = order(deviceID, o.frame)
	}
	if !k.pause(a.Delay) {
		return buf, k.ctx.Err()
	}
	raw, typ := o.raw, websocket.MessageText
	if o.binary {
		typ = websocket.MessageBinary
	}
	m := Frame{Type: "raw", Seq: -1}
	if o.frame != nil {
		m = frameOfServer(o.frame)
		var err error
		if buf, err = wire.AppendServer(buf, o.frame); err != nil {
			s.cfg.Log.Error("frame could not be encoded", "type", m.Type, "instruction", m.InstructionID, "err", err)
			return buf, err
		}
		raw = buf
	}
	if a.Replace != nil {
		raw = a.Replace
	}
	m.Conn, m.DeviceID, m.Size, m.Binary = k.n, deviceID, len(raw), o.binary
	for range copies(a) {
		if s.cfg.Trace != nil {
			s.cfg.Trace(FromServer, m, raw)
		}
		if err := k.ws.Write(k.ctx, typ, raw); err != nil {
			return buf, err
		}
	}
	if a.Cut {
		k.cancel()
		return buf, k.ctx.Err()
	}
	return buf, nil
}

func copies(a Action) int {
	if a.Drop {
		return 0
	}
	return 1 + a.Repeat
}
