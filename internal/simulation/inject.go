package simulation

import (
	"bytes"
	"fmt"
)

// oldFrames are frames that must not be acted on, but for %s, the id of something in
// flight. They are of no generation that ever was.
var oldFrames = []string{
	`{"t":"cancel","gen":"0","instructionId":%q}`,
	`{"t":"resultAck","gen":"18446744073709551615","instructionId":%q}`,
	`{"t":"chunkAck","gen":"0","instructionId":%q,"upToStreamSeq":1000000}`,
	`{"t":"instruction","gen":"0","instructionId":%q,"rootSessionId":"s","issuedSeq":1,"kind":"exec","args":{"command":"false"},"timeoutMs":1000}`,
	`{"t":"bye","gen":"0","reason":"revoked","about":%q}`,
	`{"t":"ping","about":%q}`,
	`{"t":"new in a later version","instructionId":%q}`,
	`this is not JSON, %q`,
}

func (w *World) inject(n int64) {
	id := "ins_unheard_of"
	if flying := w.server.State(w.device).Inflight; len(flying) > 0 {
		id = flying[int(n)%len(flying)]
	}
	raw := fmt.Appendf(nil, oldFrames[int(n)%len(oldFrames)], id)
	w.server.Inject(w.device, bytes.TrimSpace(raw))
}
