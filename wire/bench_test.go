package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand"
	"testing"

	"github.com/sema-agent/device-executor/wire"
)

// Every benchmark stands beside its baseline, the same work by encoding/json,
// and counts raw bytes, not base64.

const (
	benchChunkBytes   = wire.MaxChunkBytes
	benchPayloadBytes = wire.DefaultPayloadPartBytes
)

func noise(n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(1)).Read(b)
	return b
}

func benchChunk() *wire.Chunk {
	return &wire.Chunk{Gen: "7", InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W", StreamSeq: 4711,
		Kind: wire.ChunkStdout, Data: noise(benchChunkBytes)}
}

func BenchmarkAppendChunk(b *testing.B) {
	c := benchChunk()
	b.Run("wire", func(b *testing.B) {
		var buf []byte
		b.SetBytes(benchChunkBytes)
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if buf, err = wire.AppendChunk(buf[:0], c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		var buf bytes.Buffer
		b.SetBytes(benchChunkBytes)
		b.ReportAllocs()
		for b.Loop() {
			buf.Reset()
			if err := encodeJSON(&buf, chunkAsJSON(c)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodeChunk(b *testing.B) {
	frame, err := wire.AppendChunk(nil, benchChunk())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("wire", func(b *testing.B) {
		b.SetBytes(benchChunkBytes)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.DecodeDevice(frame, wire.MaxFrameBytes); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		b.SetBytes(benchChunkBytes)
		b.ReportAllocs()
		for b.Loop() {
			var v struct {
				T, Gen, InstructionID, Kind string
				StreamSeq                   int64
				DataB64                     []byte
			}
			if err := json.Unmarshal(frame, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodePayload(b *testing.B) {
	frame, err := wire.AppendServer(nil, &wire.Payload{Gen: "7", InstructionID: "ins_01J8ZQ4T9X7M3K5N6P8R0S2V4W",
		Part: wire.PartChunk, Offset: 1 << 20, Data: noise(benchPayloadBytes)})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("wire", func(b *testing.B) {
		b.SetBytes(benchPayloadBytes)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.DecodeServer(frame); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		b.SetBytes(benchPayloadBytes)
		b.ReportAllocs()
		for b.Loop() {
			var v struct {
				T, Gen, InstructionID, Part string
				Offset                      int64
				DataB64                     []byte
			}
			if err := json.Unmarshal(frame, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodeBase64(b *testing.B) {
	text := []byte(base64.StdEncoding.EncodeToString(noise(benchPayloadBytes)))
	dst := make([]byte, 0, len(text))
	b.Run("wire", func(b *testing.B) {
		b.SetBytes(benchPayloadBytes)
		for b.Loop() {
			if _, err := wire.DecodeBase64(dst, text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("base64", func(b *testing.B) {
		b.SetBytes(benchPayloadBytes)
		for b.Loop() {
			if _, err := base64.StdEncoding.AppendDecode(dst, text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
