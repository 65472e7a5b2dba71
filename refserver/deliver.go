package refserver

import "github.com/sema-agent/device-executor/wire"

// deliver hands an accepted chunk towards the consumer. A consumer that falls
// behind its bound costs the command its life (§4).
func (c *Call) deliver(f *wire.Chunk) {
	if c.what.Deliver == nil || c.muted {
		c.delivered = c.next
		return
	}
	if len(c.pending) >= c.s.cfg.PendingEntries || c.pendingBytes+len(f.Data) > c.s.cfg.PendingBytes {
		c.settlement.Stream.Overflow = true
		c.mute()
		c.cancel()
		return
	}
	c.pending = append(c.pending, f)
	c.pendingBytes += len(f.Data)
	c.pokeDelivery()
}

// mute drops what was not delivered, and all that follows.
func (c *Call) mute() {
	c.muted, c.pending, c.pendingBytes, c.delivered = true, nil, 0, c.next
	c.pokeDelivery()
}

func (c *Call) pokeDelivery() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// deliverLoop calls the consumer, one chunk after another, until the call is
// settled and everything that belongs to it was taken.
func (c *Call) deliverLoop() {
	defer c.s.wg.Done()
	defer close(c.done)
	for {
		f, over := c.nextDelivery()
		if over {
			return
		}
		if f == nil {
			<-c.wake
			continue
		}
		var err error
		if f.Kind != wire.ChunkExit {
			err = c.what.Deliver(f.Kind, f.Data)
		}
		c.tookDelivery(f, err)
	}
}

func (c *Call) nextDelivery() (f *wire.Chunk, over bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if len(c.pending) == 0 {
		return nil, c.state == wire.StateTerminal
	}
	f = c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	c.delivering = true
	return f, false
}

func (c *Call) tookDelivery(f *wire.Chunk, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.delivering = false
	if !c.muted {
		c.pendingBytes -= len(f.Data)
		c.delivered = f.StreamSeq + 1
	}
	if err != nil {
		c.settlement.Stream.DeliverErr = err
		c.mute()
		c.cancel()
	}
	if c.what.AckDelivered && c.state == wire.StateDispatchCommitted {
		if k := c.device.current; k != nil && k.acked {
			k.ack(c.id, c.watermark())
		}
	}
	c.finishIfDelivered()
}

// finishIfDelivered settles an accepted result once nothing is left to deliver.
func (c *Call) finishIfDelivered() {
	if c.terminal == nil || c.state != wire.StateDispatchCommitted || len(c.pending) > 0 || c.delivering {
		return
	}
	if k := c.device.current; k != nil { // first: settling may send the next instruction
		k.release(c.id)
	}
	c.s.settle(c, Settlement{Outcome: c.terminal.Outcome, State: wire.StateTerminal, By: ByResult})
}
