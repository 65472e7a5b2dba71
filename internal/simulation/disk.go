package simulation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/instructions"
	"github.com/sema-agent/device-executor/wire"
)

// disk is a made-up file system with handlers for two kinds of instructions.
type disk struct {
	m *machine

	mu    sync.Mutex
	files map[string][]byte
	times map[string]int // how often each was written
}

func newDisk(m *machine) *disk {
	return &disk{m: m, files: map[string][]byte{}, times: map[string]int{}}
}

func (d *disk) handlers() map[wire.Kind]instructions.Handler {
	return map[wire.Kind]instructions.Handler{
		wire.KindWriteFile:      d.write,
		wire.KindReadBinaryFile: d.read,
	}
}

// written returns a file that was written, and how often it was.
func (d *disk) written(name string) ([]byte, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[name], d.times[name]
}

func (d *disk) write(ctx context.Context, c *instructions.Call) wire.Outcome {
	args := c.Args.(wire.WriteArgs)
	moments := d.m.moments(c.In.InstructionID)
	var content []byte
	for whole := false; !whole; {
		p, err := c.Content.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return c.Stopped(ctx)
		case err != nil:
			return wire.Failf(wire.CodeTargetUnavailable, "nothing was written: %v", err)
		case p.Part == wire.PartChunk && p.Offset != int64(len(content)):
			return wire.Failf(wire.CodeInvalid, "a chunk for offset %d after %d bytes", p.Offset, len(content))
		}
		content = append(content, p.Data...)
		whole = p.Part == wire.PartCommit
	}
	sum := sha256.Sum256(content)
	if int64(len(content)) != args.ContentLen || hex.EncodeToString(sum[:]) != args.SHA256 {
		return wire.Failf(wire.CodeInvalid, "%d bytes that are not what was announced", len(content))
	}
	if err := pause(ctx, moments.moment(20*time.Millisecond)); err != nil {
		return c.Stopped(ctx)
	}
	if err := c.Begin(ctx); err != nil {
		return c.Stopped(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[args.Path] = content
	d.times[args.Path]++
	created := d.times[args.Path] == 1
	return wire.WriteOutcome{CanonicalPath: args.Path, Created: &created}
}

// read serves files that exist as soon as someone asks for them: their names say
// what is in them.
func (d *disk) read(ctx context.Context, c *instructions.Call) wire.Outcome {
	name := c.Args.(wire.PathArgs).Path
	var p Program
	var size int
	if _, err := fmt.Sscanf(path.Base(name), readName, &p.Seed, &size); err != nil {
		return wire.Failf(wire.CodeNotFound, "no such file: %v", err)
	}
	text := p.text(1)
	moments := d.m.moments(c.In.InstructionID)
	hang := time.Duration(0)
	_, _ = fmt.Sscanf(path.Base(name), hangName, &p.Seed, &size, &hang)
	d.hang(ctx, hang)
	buf := make([]byte, wire.MaxChunkBytes)
	for size > 0 {
		if err := pause(ctx, moments.moment(time.Millisecond)); err != nil {
			return c.Stopped(ctx)
		}
		part := buf[:min(size, len(buf))]
		_, _ = io.ReadFull(text, part)
		if err := c.Out.Append(ctx, wire.ChunkData, part); err != nil {
			return c.Stopped(ctx)
		}
		size -= len(part)
	}
	return wire.ReadOutcome{}
}

// hang is a call that does not come back from the kernel for a while, whoever gives it
// up. It comes back at the very moment when the executor answers for it, which is when
// things go wrong if they do.
func (d *disk) hang(ctx context.Context, lasts time.Duration) {
	over := time.NewTimer(lasts)
	defer over.Stop()
	select {
	case <-over.C:
		return
	case <-ctx.Done():
	case <-d.m.stop:
		return
	}
	over.Reset(answeredFor)
	select {
	case <-over.C:
	case <-d.m.stop:
	}
}

// answeredFor is how long after its instruction's end a read may take to come back,
// before it is answered for.
const answeredFor = 250 * time.Millisecond

// The forms of names of files to be read: seed, size, and how long it hangs.
const (
	readName = "text-%d-%d"
	hangName = readName + "-%d"
)
