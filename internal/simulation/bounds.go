package simulation

import "github.com/sema-agent/device-executor/wire"

// bounds are the executor's promises of how much it holds back.
type bounds struct{ lane, chunks, total int }

// How much more than the outbox a command's output may take: what the two streams
// gather, and the one chunk that a lane may always have.
const beside = 2*(128<<10) + wire.MaxChunkBytes

func (a *asked) confirm(upTo int64) {
	for a.acked <= upTo && a.acked < int64(len(a.sizes)) {
		a.confirmed += int64(a.sizes[a.acked])
		a.acked++
	}
}

// held is how much of a command's output the executor has read and the server not
// confirmed; at least as much is in memory.
func (a *asked) held() int64 {
	if a.proc == nil || a.proc.dead() {
		return 0
	}
	_, out := a.proc.out.counts()
	_, err := a.proc.err.counts()
	return out + err - a.confirmed
}

// look is called after every event of the schedule.
func (j *judge) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.room()
}

// room checks what is held of each instruction and over all.
func (j *judge) room() {
	var held, allowed int64 = 0, int64(j.bounds.total)
	for id, a := range j.asks {
		h := a.held()
		if h > int64(j.bounds.lane+beside) {
			j.fail("%s: %d bytes were read and are not acknowledged", id, h)
		}
		if h > 0 {
			held += h
			allowed += beside
		}
	}
	if held > allowed {
		j.fail("%d bytes of output are held, at most %d may be", held, allowed)
	}
}
