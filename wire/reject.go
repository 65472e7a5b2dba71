package wire

import "fmt"

// RejectError is why a decoder refused a frame. From DecodeDevice it carries
// the reason a server owes (§2.4, stage 1).
type RejectError struct {
	Reason FrameRejectReason
	Detail string // for people; may be empty. Never content of the frame.
}

// Error implements error.
func (e *RejectError) Error() string {
	if e.Detail == "" {
		return "frame refused: " + string(e.Reason)
	}
	return "frame refused: " + string(e.Reason) + ": " + e.Detail
}

// SizeError is why an encoder made no frame: it would have been larger than
// its phase allows (§2.1).
type SizeError struct {
	Frame string // the frame's type
	Size  int    // bytes; a lower bound where encoding stopped at the limit
	Limit int    // bytes
}

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("frame too large: %s of at least %d bytes, at most %d are allowed", e.Frame, e.Size, e.Limit)
}
