package refserver

// settledMemo is what is remembered of a settled instruction (§2.4).
type settledMemo struct {
	deviceID  string
	conn      int64 // the connection that it was last sent or listed on
	byResult  bool
	deviceSeq int64 // the highest accepted; -1: none
	next      int64 // the first streamSeq that was not accepted
}

// memo holds the most recently settled instructions, a bounded number of them.
type memo struct {
	byID map[string]settledMemo
	ring []string
	at   int
}

func newMemo(n int) memo {
	return memo{byID: map[string]settledMemo{}, ring: make([]string, n)}
}

func (m *memo) add(id string, e settledMemo) {
	delete(m.byID, m.ring[m.at])
	m.ring[m.at] = id
	m.at = (m.at + 1) % len(m.ring)
	m.byID[id] = e
}
