package refserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

func TestRateWindowsOfCallersWhoLeftAreForgotten(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := New(Config{Now: func() time.Time { return now }})
	for range 50 {
		for caller := range 20 {
			if wait := s.admit(bucketIssue, fmt.Sprint(now, caller)); wait != 0 {
				t.Fatalf("a first request was refused for %d s", wait)
			}
		}
		now = now.Add(rateWindow)
	}
	if len(s.windows) > 40 {
		t.Errorf("%d windows are kept", len(s.windows))
	}
}

func TestAChangedResendIsNoticedOfTheLatestChunks(t *testing.T) {
	s := New(Config{})
	d := s.addDevice(DeviceRecord{})
	c := newCall(s, d, Dispatch{Kind: wire.KindExec}, nil, "")
	k := &socket{s: s, device: d, acks: map[string]*wire.ChunkAck{}, wake: make(chan struct{}, 1)}
	chunk := func(seq int64, data string) {
		c.chunk(k, &wire.Chunk{StreamSeq: seq, Kind: wire.ChunkStdout, Data: []byte(data)}, Violation{})
	}
	for seq := range int64(maxSums + 2) {
		chunk(seq, fmt.Sprint(seq))
	}
	if len(c.sums) != maxSums {
		t.Fatalf("%d sums are kept", len(c.sums))
	}
	for _, seq := range []int64{0, 1, 2, maxSums - 1, maxSums, maxSums + 1} {
		chunk(seq, fmt.Sprint(seq)) // the same bytes
	}
	if v := s.Violations(); len(v) != 0 {
		t.Fatalf("%v", v)
	}
	chunk(1, "changed") // forgotten
	chunk(2, "changed")
	chunk(maxSums+1, "changed")
	if v := s.Violations(); len(v) != 2 || v[0].Reason != ChunkChanged {
		t.Fatalf("%v", v)
	}
}
