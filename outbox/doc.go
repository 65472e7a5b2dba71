// Package outbox holds what was said and is not yet acknowledged.
//
// Each instruction speaks through a [Lane]: numbered chunks of output, then one
// result. The outbox keeps every chunk until the server's watermark has passed
// it and the result until it is acknowledged, and hands the connection its next
// frame. It promises (§4, §5.2 R2, R5–R9, §5.4):
//
//   - A chunk gets its streamSeq when it is appended, and keeps it and its bytes
//     for good. Numbers start at 0 and leave nothing out; a successful exec ends
//     with exactly one exit chunk, any other outcome has none.
//   - A result gets its deviceSeq once, at Finish. It follows every chunk of its
//     instruction on the connection it is sent on.
//   - The generation is stamped when a frame is handed out, and nowhere else.
//     Frames are handed out between Resume and Suspend only.
//   - After Resume nothing is sent for an instruction that the server did not
//     list, and of a listed one only what lies past its watermark.
//   - Lanes take turns, one frame each, so a flood in one does not delay another.
//   - Memory is bounded: 1 MiB and 1,024 chunks per lane, 32 MiB over all. At a
//     bound Append blocks, connected or not. A lane that holds no chunk may always
//     take one, so lanes that the server does not acknowledge cannot starve the
//     others; the overall bound can be exceeded by that one chunk per lane.
//   - At most 64 chunks of a lane are under way past its watermark: if one of them
//     is lost, the server's reorder buffer (64 entries, 2 MiB) holds all others
//     until it is sent again.
//   - Sending again is bounded. Chunks past the watermark go again after 10 s
//     without progress, then after 20, 40 and every 60 s. A result goes again on
//     each connection where its instruction is listed and after 15 s of silence,
//     then 30, 60 and every 120 s; after 10 sends in all, or 10 minutes after the
//     first, the instruction is given up with a log line. So is one whose result
//     cannot be sent because the output before it has not been acknowledged any
//     further for 10 minutes of one connection, and the instruction finished longest
//     ago when more than 512, or results of more than 32 MiB, wait for their
//     acknowledgement.
//
// Acknowledgements that make no sense are ignored and counted: a watermark above
// anything ever sent, an id the outbox does not know, the ack of a result that
// was never sent. A watermark never moves back: what was acknowledged is gone.
//
// No call but [Lane.Append] blocks. All may be made from any goroutine.
package outbox
