package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/sema-agent/device-executor/wire"
)

// chunkJSON says in encoding/json's terms what AppendChunk must write.
type chunkJSON struct {
	T             string  `json:"t"`
	Gen           string  `json:"gen"`
	InstructionID string  `json:"instructionId"`
	StreamSeq     int64   `json:"streamSeq"`
	Kind          string  `json:"kind"`
	DataB64       *string `json:"dataB64,omitempty"`
	ExitCode      *int64  `json:"exitCode,omitempty"`
}

func chunkAsJSON(c *wire.Chunk) chunkJSON {
	j := chunkJSON{T: "chunk", Gen: string(c.Gen), InstructionID: c.InstructionID, StreamSeq: c.StreamSeq, Kind: string(c.Kind)}
	if c.Kind == wire.ChunkExit {
		j.ExitCode = &c.ExitCode
	} else {
		data := base64.StdEncoding.EncodeToString(c.Data)
		j.DataB64 = &data
	}
	return j
}

// encodeJSON is encoding/json without HTML escaping and its final newline.
func encodeJSON(buf *bytes.Buffer, v any) error {
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	buf.Truncate(buf.Len() - 1)
	return nil
}

// checkChunk holds AppendChunk to encoding/json and to the strict decoder.
func checkChunk(t *testing.T, c *wire.Chunk) {
	t.Helper()
	var want bytes.Buffer
	if err := encodeJSON(&want, chunkAsJSON(c)); err != nil {
		t.Fatal(err)
	}
	const before = "bytes that were there"
	got, err := wire.AppendChunk([]byte(before), c)
	if !bytes.HasPrefix(got, []byte(before)) {
		t.Fatalf("what dst held is gone")
	}
	frame := got[len(before):]
	if err != nil {
		if len(frame) != 0 {
			t.Errorf("an error and %d bytes", len(frame))
		}
		var size *wire.SizeError
		if tooLarge := want.Len() > wire.MaxFrameBytes; errors.As(err, &size) != tooLarge {
			var member *wire.MemberError
			if !errors.As(err, &member) {
				t.Errorf("%v, for a frame of %d bytes", err, want.Len())
			}
		}
		if _, err := wire.DecodeDevice(want.Bytes(), wire.MaxFrameBytes); err == nil {
			t.Errorf("refused to encode what a server takes: %s", want.Bytes())
		}
		return
	}
	if !bytes.Equal(frame, want.Bytes()) {
		t.Fatalf("not what encoding/json writes:\n got %.300q\nwant %.300q", frame, want.Bytes())
	}
	f, err := wire.DecodeDevice(frame, wire.MaxFrameBytes)
	if err != nil {
		t.Fatalf("sent a frame that a server refuses: %v", err)
	}
	back := f.(*wire.Chunk)
	if back.Gen != c.Gen || back.InstructionID != strings.ToValidUTF8(c.InstructionID, "\uFFFD") && !strings.Contains(back.InstructionID, "\uFFFD") ||
		back.StreamSeq != c.StreamSeq || back.Kind != c.Kind || !bytes.Equal(back.Data, c.Data) || back.ExitCode != c.ExitCode {
		t.Fatalf("came back as %+v, was %+v", back, c)
	}
}

func TestAppendChunkWritesWhatEncodingJSONWrites(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	ids := []string{"ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", "i", "<&>", "\"\\\b\f\n\r\t\x00\x1f\x7f", "é…😀", "\u2028\u2029\u202a",
		"\xff\xfe", "a\xe2\x80", "\xed\xa0\x80", "\uFFFD", strings.Repeat("é\x01", 3000), ""}
	kinds := append(wire.ChunkKinds(), "stdin", "")
	gens := []wire.Gen{"0", "7", "9223372036854775807", "123456789012345678901234567890", "07", "", "+7", "7.0"}
	for range 3000 {
		c := &wire.Chunk{
			Gen:           gens[r.Intn(len(gens))],
			InstructionID: ids[r.Intn(len(ids))],
			StreamSeq:     r.Int63n(1 << uint(1+r.Intn(55))),
			Kind:          kinds[r.Intn(len(kinds))],
		}
		if c.Kind == wire.ChunkExit {
			c.ExitCode = r.Int63n(1<<54) - 1<<53
		} else {
			c.Data = noise(r.Intn(300))
		}
		checkChunk(t, c)
	}
}

func TestAppendChunkStopsAtTheLimit(t *testing.T) {
	c := &wire.Chunk{Gen: "7", InstructionID: "ins_1", Kind: wire.ChunkStdout}
	empty, err := wire.AppendChunk(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	// Base64 grows by four, the id by one: together they meet the limit exactly.
	room := wire.MaxFrameBytes - len(empty)
	c.Data = make([]byte, room/4*3)
	c.InstructionID += strings.Repeat("x", room%4)
	frame, err := wire.AppendChunk(nil, c)
	if err != nil || len(frame) != wire.MaxFrameBytes {
		t.Fatalf("%d bytes, %v; want exactly %d", len(frame), err, wire.MaxFrameBytes)
	}
	checkChunk(t, c)
	c.InstructionID += "x"
	_, err = wire.AppendChunk(nil, c)
	var size *wire.SizeError
	if !errors.As(err, &size) || size.Size != wire.MaxFrameBytes+1 || size.Limit != wire.MaxFrameBytes || size.Frame != "chunk" {
		t.Fatalf("%v for one byte too many", err)
	}
	c.Data = make([]byte, 64<<20)
	dst := make([]byte, 0, 8)
	if got, err := wire.AppendChunk(dst, c); !errors.As(err, &size) || cap(got) != 8 {
		t.Errorf("%v, and a buffer of %d bytes, for 64 MiB of data", err, cap(got))
	}
}

func TestAppendChunkAllocatesNothing(t *testing.T) {
	c := benchChunk()
	buf, err := wire.AppendChunk(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(50, func() { buf, _ = wire.AppendChunk(buf[:0], c) }); n != 0 {
		t.Errorf("%v allocations a chunk", n)
	}
}

func FuzzAppendChunk(f *testing.F) {
	f.Add("7", "ins_1", int64(0), "stdout", []byte("A"), int64(0))
	f.Add("7", "ins_1", int64(9), "exit", []byte(nil), int64(-1))
	f.Add("07", "\xff\u2028<", int64(-1), "stdin", []byte("\x00\xff"), int64(1)<<60)
	f.Fuzz(func(t *testing.T, gen, id string, seq int64, kind string, data []byte, code int64) {
		c := &wire.Chunk{Gen: wire.Gen(gen), InstructionID: id, StreamSeq: seq, Kind: wire.ChunkKind(kind)}
		if c.Kind == wire.ChunkExit {
			c.ExitCode = code
		} else {
			c.Data = data
		}
		checkChunk(t, c)
	})
}
