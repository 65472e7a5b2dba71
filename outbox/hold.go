package outbox

import (
	"math/bits"
	"sync"
	"time"

	"github.com/sema-agent/device-executor/wire"
)

// chunk is one held chunk; its streamSeq is its place in the lane.
type chunk struct {
	kind     wire.ChunkKind
	buf      *buffer // nil in an exit chunk
	exitCode int64
	sentAt   time.Duration // when it was last handed out, on the outbox's clock
}

// ring is a first-in-first-out line of chunks that grows as needed.
type ring struct {
	slots []chunk // length: a power of two
	head  int
	n     int
}

func (r *ring) at(i int) *chunk { return &r.slots[(r.head+i)&(len(r.slots)-1)] }

func (r *ring) push(c chunk) {
	if r.n == len(r.slots) {
		grown := make([]chunk, max(8, 2*len(r.slots)))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.slots, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = c
}

func (r *ring) pop() chunk {
	c := *r.at(0)
	*r.at(0) = chunk{}
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.n--
	return c
}

// Buffers come in powers of two from 512 bytes to the largest chunk; what a chunk
// takes is counted as such a buffer, so the bounds are bounds of memory.
const (
	smallestShift = 9
	largestShift  = 16
)

func class(n int) int { return max(bits.Len(uint(n-1)), smallestShift) - smallestShift }

// sizeFor is the memory that a chunk of n bytes takes.
func sizeFor(n int) int { return 1 << (class(n) + smallestShift) }

// buffer is the memory of one chunk.
type buffer struct {
	data []byte
}

// buffers hands out buffers and takes them back. What lies idle goes with the
// next garbage collections.
type buffers struct {
	pools [largestShift - smallestShift + 1]sync.Pool
}

// get returns a buffer that holds a copy of data.
func (b *buffers) get(data []byte) *buffer {
	c := class(len(data))
	buf, ok := b.pools[c].Get().(*buffer)
	if !ok {
		buf = &buffer{data: make([]byte, 0, 1<<(c+smallestShift))}
	}
	buf.data = append(buf.data[:0], data...)
	return buf
}

func (b *buffers) put(buf *buffer) { b.pools[class(cap(buf.data))].Put(buf) }
