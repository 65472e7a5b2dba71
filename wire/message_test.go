package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sema-agent/device-executor/wire"
)

func TestMessagesAreCutBetweenCharacters(t *testing.T) {
	a := strings.Repeat("a", wire.MaxMessageBytes)
	for _, c := range []struct{ name, in, want string }{
		{"short", "no such file", "no such file"},
		{"exactly at the limit", a, a},
		{"one byte more", a + "b", a},
		{"a character across the limit", a[1:] + "é", a[1:]},
		{"a long character across the limit", a[:len(a)-3] + "😀tail", a[:len(a)-3]},
		{"a character that ends at the limit", a[4:] + "😀tail", a[4:] + "😀"},
		{"not UTF-8", "open /\xff\xfe: no such file", "open /\uFFFD: no such file"},
		{"not UTF-8, longer when replaced", a[1:] + "\xff", a[1:]},
		{"broken character at the limit", a[2:] + "\xe2\x82" + "b", a[2:]},
		{"no character at all", strings.Repeat("\x80", 3*wire.MaxMessageBytes), "\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wire.CutMessage(c.in)
			if got != c.want {
				t.Errorf("%d bytes ending %q, want %d ending %q", len(got), got[max(0, len(got)-8):], len(c.want), c.want[max(0, len(c.want)-8):])
			}
			frame, err := wire.AppendDevice(nil, &wire.Result{Gen: "7", InstructionID: "i", Outcome: wire.Failure{Code: wire.CodeUnknown, Message: c.in}})
			if err != nil {
				t.Fatal(err)
			}
			f, err := wire.DecodeDevice(frame, wire.MaxFrameBytes)
			if err != nil || f.(*wire.Result).Outcome.(wire.Failure).Message != c.want {
				t.Errorf("a frame carries it otherwise: %v", err)
			}
		})
	}
}

func FuzzCutMessage(f *testing.F) {
	f.Add("a", 5000)
	f.Add("é😀\xff", 1500)
	f.Fuzz(func(t *testing.T, s string, times int) {
		s = strings.Repeat(s, max(0, times)%5000)
		got := wire.CutMessage(s)
		if !utf8.ValidString(got) || len(got) > wire.MaxMessageBytes {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if utf8.ValidString(s) {
			if !strings.HasPrefix(s, got) || len(s) > len(got) && len(got) <= wire.MaxMessageBytes-utf8.UTFMax {
				t.Fatalf("%d of %d bytes kept", len(got), len(s))
			}
		}
	})
}
