package instructions

import (
	"crypto/sha256"
	"strings"
)

// seenGeneration is how many ids one generation of the memory holds: about 5 MiB.
const seenGeneration = 128 << 10

// seen remembers which ids came by, in bounded memory.
//
// It keeps the last one to two generations of ids exactly, as 16 bytes of a digest
// each. Of the generations before it keeps one time: the greatest in any id that
// has the protocol's form (`ins_` and a ULID, which begins with its time in
// milliseconds). An id of this form that is not younger may have run, and is never
// run again; the price is that a server whose clock jumped back behind the last
// 128 Ki instructions is refused.
type seen struct {
	limit       int
	young, old  map[[16]byte]struct{}
	youngLatest string // greatest ULID time in young, as its ten characters
	oldLatest   string // the same of old
	forgotten   string // the same of all before
}

func newSeen(limit int) *seen {
	return &seen{limit: limit, young: make(map[[16]byte]struct{})}
}

func (s *seen) add(id string) {
	if len(s.young) >= s.limit {
		s.forgotten = max(s.forgotten, s.oldLatest)
		s.old, s.oldLatest = s.young, s.youngLatest
		s.young, s.youngLatest = make(map[[16]byte]struct{}), ""
	}
	s.young[digest(id)] = struct{}{}
	if t, ok := ulidTime(id); ok {
		s.youngLatest = max(s.youngLatest, t)
	}
}

// has reports whether id came by among the ids still kept exactly.
func (s *seen) has(id string) bool {
	d := digest(id)
	_, young := s.young[d]
	_, old := s.old[d]
	return young || old
}

// mayHave reports whether id is too old to tell.
func (s *seen) mayHave(id string) bool {
	t, ok := ulidTime(id)
	return ok && s.forgotten != "" && t <= s.forgotten
}

func digest(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}

// ulidTime cuts the time out of an id. ULID times compare as strings.
func ulidTime(id string) (string, bool) {
	rest, ok := strings.CutPrefix(id, "ins_")
	if !ok || len(rest) != 26 {
		return "", false
	}
	return rest[:10], true
}
