package main

import (
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/sema-agent/device-executor/wire"
)

func TestWhatIsToldBeginsALineOfTheTerminal(t *testing.T) {
	controller, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer controller.Close()
	out := newOutlet(t.Context(), nil, func() {})
	r := &reporter{app: &app{stdout: terminal, stderr: terminal}, out: out}
	for _, data := range []string{"no end", "an end\n"} {
		if err := r.output(event{Event: "output", Chunk: wire.ChunkStdout, data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		r.tell(event{Event: "waiting", Line: 7})
	}
	if err := out.end(); err != nil {
		t.Error(err)
	}
	const want = "no end\nline 7 waits for a device to connect\nan end\nline 7 waits for a device to connect\n"
	got := make([]byte, len(want)+strings.Count(want, "\n")) // the terminal's own ends of lines
	if _, err := io.ReadFull(controller, got); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	if text := strings.ReplaceAll(string(got), "\r\n", "\n"); text != want {
		t.Errorf("%q, want %q", text, want)
	}
}
