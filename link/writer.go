package link

import (
	"context"
	"time"

	"github.com/sema-agent/device-executor/internal/fault"
	"github.com/sema-agent/device-executor/wire"
)

// write is the only goroutine that sends frames: control frames first, then what
// the outbox has, which is fair among instructions.
func (c *connection) write() {
	var buf []byte // reused for every frame of output
	for {
		select {
		case <-c.done:
			return
		case f := <-c.control:
			if !c.sendControl(f) {
				return
			}
			continue
		default:
		}
		var ready <-chan struct{}
		if c.open.Load() {
			frame, ok := c.l.cfg.Outbox.Next(buf[:0])
			if ok {
				buf = frame
				if !c.send(frame) {
					return
				}
				continue
			}
			ready = c.l.cfg.Outbox.Ready()
		}
		select {
		case <-c.done:
			return
		case f := <-c.control:
			if !c.sendControl(f) {
				return
			}
		case <-ready:
		}
	}
}

// sendControl sends one control frame, or passes a ping on to the pinger.
func (c *connection) sendControl(f wire.DeviceFrame) bool {
	switch f := f.(type) {
	case pingOrder:
		c.pingOwed.Store(false)
		signal(c.pings)
		return true
	case *wire.GenerationAck:
		// Before the frame can be answered, so that no answer comes too early.
		c.open.Store(true)
	case *wire.Heartbeat:
		c.beatOwed.Store(false)
		f.Seq, f.Inflight = c.beats, c.l.cfg.Work.Inflight()
		if f.Inflight == nil || fault.On("link: heartbeats name no work") {
			f.Inflight = []string{}
		}
		if !fault.On("link: the heartbeat's seq stands still") {
			c.beats++
		}
		c.l.count.heartbeats.Add(1)
	}
	frame, err := wire.AppendDevice(nil, f)
	if err != nil {
		c.l.cfg.Log.Error("control frame not sent: it cannot be encoded", "type", string(f.DeviceType()), "err", err)
		return true
	}
	if !c.send(frame) {
		return false
	}
	if f.DeviceType() == wire.TypeGoodbye {
		close(c.said)
	}
	return true
}

// send writes one frame, under the limit for writes.
func (c *connection) send(frame []byte) bool {
	c.writing.Store(c.clock())
	c.stalled.Reset(writeLimit)
	err := c.socket.Write(context.Background(), frame)
	c.stalled.Stop()
	c.writing.Store(0)
	if err != nil {
		if !c.over.Load() {
			c.end(lost(err))
		}
		return false
	}
	c.l.count.framesOut.Add(1)
	c.l.count.bytesOut.Add(int64(len(frame)))
	return true
}

// ping sends a ping whenever the writer says so. A pong that does not come is no
// verdict: the vigil judges by what was received at all.
func (c *connection) ping(ctx context.Context) {
	// The library closes the connection if ctx ends in the middle of the ping's own
	// write, so it is given what the library itself gives.
	patience := max(2*c.interval, 5*time.Second)
	for {
		select {
		case <-c.done:
			return
		case <-c.pings:
		}
		now := c.clock()
		if asked := c.asked.Load(); asked == 0 || now-int64(c.socket.Silence()) > asked {
			c.asked.Store(now)
		}
		limit, cancel := context.WithTimeout(ctx, patience)
		err := c.socket.Ping(limit)
		cancel()
		if err != nil {
			c.l.cfg.Log.Debug("ping unanswered", "err", err)
		}
	}
}
