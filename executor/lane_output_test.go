package executor_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// scaled makes what is large smaller where every byte costs ten times as much.
func scaled(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}

func TestWhateverACommandPrintsArrives(t *testing.T) {
	w := newWay(t, refserver.Config{})
	writes, line := scaled(1_000_000), scaled(100_000_000)
	all := strings.Builder{}
	for i := range 256 {
		all.WriteByte(byte(i))
	}
	table := []struct {
		name, command, stdout, stderr string
	}{
		{name: "nothing", command: ":"},
		{name: "every byte", command: printf(all.String()), stdout: all.String()},
		{name: "invalid UTF-8", command: `printf '\377\300\200\355\240\200\364\220\200\200'`, stdout: "\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80"},
		{name: "half a rune on each side of a write", command: `printf '\303'; sleep .1; printf '\251'`, stdout: "é"},
		{name: "zeros", command: "head -c 100000 /dev/zero", stdout: strings.Repeat("\x00", 100_000)},
		{name: "what looks like a frame", command: `printf '{"t":"result"}\n</script>\342\200\250'`, stdout: "{\"t\":\"result\"}\n</script>\u2028"},
		{name: "no newline at the end", command: "printf a; printf b >&2", stdout: "a", stderr: "b"},
		{name: "only on stderr", command: "head -c 300000 /dev/zero >&2", stderr: strings.Repeat("\x00", 300_000)},
		{name: "a million writes of a byte", command: fmt.Sprintf("dd if=/dev/zero bs=1 count=%d status=none", writes), stdout: strings.Repeat("\x00", writes)},
		{name: "one line of 100 MB", command: fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, line), stdout: strings.Repeat("x", line)},
		{name: "binary on both", command: "head -c 2000000 /dev/urandom >both; cat both & cat both >&2; wait", stdout: "both", stderr: "both"},
	}
	for _, c := range table {
		t.Run(c.name, func(t *testing.T) {
			a := w.must(t, shell(c.command))
			a.wants(t, "outcome", wire.ExecOutcome{})
			if c.stdout == "both" {
				b, err := os.ReadFile(filepath.Join(w.workspace, "both"))
				if err != nil {
					t.Fatal(err)
				}
				c.stdout, c.stderr = string(b), string(b)
			}
			same(t, "stdout", a.stdout, c.stdout)
			same(t, "stderr", a.stderr, c.stderr)
		})
	}
}

// printf is a command that prints s and nothing else.
func printf(s string) string {
	var b strings.Builder
	b.WriteString("printf '")
	for i := range len(s) {
		fmt.Fprintf(&b, `\%03o`, s[i])
	}
	return b.String() + "'"
}

// same compares without printing megabytes.
func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	t.Errorf("%s: %d bytes, want %d; they part at %d", what, len(got), len(want), n)
}

// speak sends content to both streams in writes of the given sizes, and
// compares what arrives.
func (w *way) speak(t testing.TB, content []byte, out, err uint16) {
	t.Helper()
	file := filepath.Join(w.workspace, "content")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	a := w.must(t, shell(fmt.Sprintf("dd if=content bs=%d status=none & dd if=content bs=%d status=none >&2; wait; exit %d",
		max(out, 1), max(err, 1), len(content)%256)))
	a.wants(t, "outcome", wire.ExecOutcome{ExitCode: int64(len(content) % 256)})
	same(t, "stdout", a.stdout, string(content))
	same(t, "stderr", a.stderr, string(content))
	w.blameless(t)
}

func TestRandomOutputIsNeverRefused(t *testing.T) {
	w := newWay(t, refserver.Config{})
	random := rand.New(rand.NewPCG(2, 7))
	alphabets := [][]byte{nil, []byte("\n"), []byte("ab\n"), []byte("\"\\\x00\x1f<>&\x7f"), []byte("\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xa9"), {0xff}}
	for round := range 40 {
		content := make([]byte, random.IntN(1<<random.IntN(19)+1))
		alphabet := alphabets[round%len(alphabets)]
		for i := range content {
			if alphabet == nil {
				content[i] = byte(random.Uint32())
			} else {
				content[i] = alphabet[random.IntN(len(alphabet))]
			}
		}
		// Sizes of every magnitude, but no more than some thousands of writes.
		size := func() uint16 { return uint16(max(1<<random.IntN(16), len(content)/4096)) }
		w.speak(t, content, size(), size())
		if t.Failed() {
			t.Fatalf("round %d: %d bytes", round, len(content))
		}
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("line\n"), uint16(1), uint16(512))
	f.Add([]byte{}, uint16(1), uint16(1))
	f.Add([]byte("\xff\xfe\x00{\"t\":\"hello\"}"), uint16(3), uint16(1))
	f.Add(bytes.Repeat([]byte{0xe2, 0x82}, 40_000), uint16(4096), uint16(65535))
	w := newWay(f, refserver.Config{})
	f.Fuzz(func(t *testing.T, content []byte, out, err uint16) { w.speak(t, content, out, err) })
}

func TestTwentyCommandsAtOnceEachGetTheirOwnBytes(t *testing.T) {
	w := newWay(t, refserver.Config{MaxInflight: 20})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			word := fmt.Sprintf("%02d-", i)
			a, err := w.do(t.Context(), shell(fmt.Sprintf("yes %s | head -c 400000; yes e%s | head -c 100000 >&2; exit %d", word, word, i)))
			if err != nil {
				t.Error(err)
				return
			}
			a.wants(t, word, wire.ExecOutcome{ExitCode: int64(i)})
			same(t, word+" stdout", a.stdout, strings.Repeat(word+"\n", 100_000))
			same(t, word+" stderr", a.stderr, strings.Repeat("e"+word+"\n", 20_000))
		})
	}
	all.Wait()
}
