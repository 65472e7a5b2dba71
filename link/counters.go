package link

import "sync/atomic"

// Counters sums up over all connections of a Link.
type Counters struct {
	Connections    int64 // handshakes completed
	FramesIn       int64
	FramesOut      int64
	BytesIn        int64 // of frames
	BytesOut       int64 // of frames
	Heartbeats     int64
	OtherGen       int64 // frames dropped unread because of their generation
	Early          int64 // frames dropped because generationAck had not been sent
	UnknownFrames  int64 // types this executor does not know or expects elsewhere
	UnknownMembers int64 // members this executor does not know, in frames it heeded
	Malformed      int64 // frames that could not be decoded
}

type counters struct {
	connections, framesIn, framesOut, bytesIn, bytesOut, heartbeats, otherGen, early, unknown, unknownMembers, malformed atomic.Int64
}

// Counters returns the counts so far; it may be called from any goroutine.
func (l *Link) Counters() Counters {
	c := &l.count
	return Counters{
		Connections: c.connections.Load(), FramesIn: c.framesIn.Load(), FramesOut: c.framesOut.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(), Heartbeats: c.heartbeats.Load(),
		OtherGen: c.otherGen.Load(), Early: c.early.Load(), UnknownFrames: c.unknown.Load(),
		UnknownMembers: c.unknownMembers.Load(), Malformed: c.malformed.Load(),
	}
}
