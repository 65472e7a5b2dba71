package simulation

import (
	"bytes"
	"crypto/sha256"
	"io"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// heard compares what is delivered with the true output.
type heard struct {
	text  io.Reader
	bytes int64
	wrong bool
}

// deliver checks output as it comes. It is the consumer's half of an instruction.
func (j *judge) deliver(ask *Ask, h *[3]heard, kind wire.ChunkKind, data []byte) {
	stream := map[wire.ChunkKind]int{wire.ChunkStdout: 1, wire.ChunkStderr: 2, wire.ChunkData: 0}[kind]
	e := &h[stream]
	if e.text == nil {
		e.text = ask.Program.text(max(stream, 1))
	}
	want := make([]byte, len(data))
	_, _ = io.ReadFull(e.text, want)
	if !bytes.Equal(want, data) && !e.wrong {
		e.wrong = true
		j.Fail("%s of %s differs from the true output within %d bytes after %d", kind, ask.Kind, len(data), e.bytes)
	}
	e.bytes += int64(len(data))
}

// settled checks how an instruction ended for its caller.
func (j *judge) settled(id string, how refserver.Settlement, h [3]heard, written func(path string) ([]byte, int)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a := j.of(id)
	a.settled, a.heard = &how, h
	j.note("settled %s by %s %T stdout=%d stderr=%d data=%d", id, how.By, how.Outcome, h[1].bytes, h[2].bytes, h[0].bytes)
	if how.State == wire.StateTerminalNeverStarted && a.starts > 0 {
		j.fail("%s started, and the server says that it never did", id)
	}
	if a.calm && how.By != refserver.ByResult {
		j.fail("%s, which nothing disturbed, was settled by %s: %+v", id, how.By, how.Outcome)
	}
	succeeded := true
	switch o := how.Outcome.(type) {
	case wire.ExecOutcome:
		if a.proc == nil && o.ExitCode != int64(a.ask.Program.Exit) { // a made-up one told the judge
			j.fail("%s ended with %d; the command's exit code is %d", id, o.ExitCode, a.ask.Program.Exit)
		}
		for stream := 1; stream <= 2; stream++ {
			want := a.said(stream)
			if a.proc == nil && stream == 1 && a.ask.Program.Orphan > 0 && h[1].bytes == want-wordBytes {
				continue // the orphan was ended before its last word
			}
			if h[stream].bytes != want {
				j.fail("%s succeeded with %d bytes on stream %d; the command said %d", id, h[stream].bytes, stream, want)
			}
		}
	case wire.ReadOutcome:
		if h[0].bytes != int64(a.ask.Size) {
			j.fail("%s succeeded with %d bytes of %d", id, h[0].bytes, a.ask.Size)
		}
	case wire.WriteOutcome:
		if content, times := written(o.CanonicalPath); times != 1 || sha256.Sum256(content) != sha256.Sum256(a.ask.content()) {
			j.fail("%s succeeded; the file was written %d times and has %d bytes of %d", id, times, len(content), a.ask.Size)
		}
	default:
		succeeded = false
	}
	if a.ask.outcome != nil {
		succeeded = a.ask.outcome(how.Outcome)
	}
	if a.calm && !succeeded {
		j.fail("%s, which nothing disturbed, ended with %+v", id, how.Outcome)
	}
}

// said is how much the command wrote on a stream.
func (a *asked) said(stream int) int64 {
	if a.proc == nil { // a real one
		return int64(a.ask.Program.total(stream))
	}
	p := a.proc.out
	if stream == 2 {
		p = a.proc.err
	}
	n, _ := p.counts()
	return n
}

// content is what a write writes.
func (a *Ask) content() []byte {
	b := make([]byte, a.Size)
	_, _ = io.ReadFull(a.Program.text(1), b)
	return b
}
