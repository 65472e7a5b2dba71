package refserver_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// FuzzEstablishedConnection holds that whatever lines a device sends over an
// established connection, the connection stays up, and nothing that was not a
// goodbye, a chunk or a result keeps its work from ending well.
func FuzzEstablishedConnection(f *testing.F) {
	for _, lines := range []string{
		`{"t":"heartbeat","gen":"1","seq":0,"inflight":["ID"]}`,
		`{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":0,"kind":"stdout","dataB64":"eA=="}` + "\n" +
			`{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":9007199254740991,"kind":"exit","exitCode":-1}`,
		`{"t":"result","gen":"1","instructionId":"ID","deviceSeq":0,"outcome":{"ok":true,"kind":"exec","exitCode":0}}`,
		`{"t":"goodbye","gen":"1","reason":"sleep","graceMs":9007199254740991}`,
		`{"t":"generationAck","gen":"1"}` + "\n" + `{"t":"hello"}` + "\n[]\n{",
		`{"t":"chunk","gen":"1","instructionId":"ID","streamSeq":-1,"kind":"stdout","dataB64":"eA"}`,
	} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		simulate(t, refserver.Config{}, func(w *world) {
			k, call := w.started(patient)
			other := w.dispatch(patient)
			for line := range strings.Lines(strings.ReplaceAll(lines, "ID", call.ID())) {
				if len(line) > wire.MaxFrameBytes || strings.Contains(line, "goodbye") {
					continue
				}
				k.message(websocket.MessageText, []byte(line))
			}
			synctest.Wait()
			k.isOpen()
			if other.State() != wire.StateDispatchCommitted {
				w.t.Fatalf("another instruction is %s", other.State())
			}
			k.exit(other.ID(), 0, 0)
			k.result(other.ID(), wire.ExecOutcome{})
			w.settledBy(other, refserver.ByResult)
		})
	})
}
