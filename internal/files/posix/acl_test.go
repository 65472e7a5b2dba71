package posix

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// words are 32-bit numbers as the kernel writes them.
func words(numbers ...uint32) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return b
}

func TestAnAccessControlListIsCutOutOfItsAnswer(t *testing.T) {
	identities := make([]byte, 32)
	entry := bytes.Repeat([]byte{7}, 24)
	list := slices.Concat(words(0x012cc16d), identities, words(1, 0), entry)
	if len(list) != 68 {
		t.Fatalf("%d bytes", len(list))
	}
	answer := slices.Concat(words(80, 8, 68), list)
	if got := aclIn(answer); !bytes.Equal(got, list) {
		t.Errorf("cut out %x", got)
	}
	padded := slices.Concat(words(84, 12, 68), words(0), list, make([]byte, 100))
	if got := aclIn(padded); !bytes.Equal(got, list) {
		t.Errorf("behind a gap: %x", got)
	}
	for name, b := range map[string][]byte{
		"no answer":              nil,
		"no list":                words(12, 8, 0),
		"a list cut short":       answer[:79],
		"a length beyond it":     slices.Concat(words(80, 8, 69), list),
		"a huge length":          slices.Concat(words(80, 8, 0xfffffff0), list),
		"an offset before it":    slices.Concat(words(80, 0xfffffff8, 68), list),
		"an offset into itself":  slices.Concat(words(80, 0, 68), list),
		"another magic number":   slices.Concat(words(80, 8, 68), words(1), list[4:]),
		"too short for a header": slices.Concat(words(80, 8, 43), list),
	} {
		if got := aclIn(b); got != nil {
			t.Errorf("%s: %x", name, got)
		}
	}
	if got, want := aclOrder(list), slices.Concat(words(8, 68), list); !bytes.Equal(got, want) {
		t.Errorf("ordered %x, want %x", got, want)
	}
	none := slices.Concat(words(8, 44), words(0x012cc16d), identities, words(0xffffffff, 0))
	if got := aclOrder(nil); !bytes.Equal(got, none) {
		t.Errorf("ordered none: %x, want %x", got, none)
	}
}
