// Package link keeps one device connected: one connection after another, each
// dialled, shaken hands on, fenced, served and ended, with a back-off between
// them (§1.2–§1.6 and R2, R9, R10, R13–R15 of the protocol).
//
// What it promises:
//
//   - There is one connection at a time. All goroutines of one have ended before
//     the next is dialled, so a frame of a superseded socket is never acted on.
//   - generationAck goes out exactly once per connection, after the fence, and
//     no chunk or result before it.
//   - Frames that keep the connection alive never wait behind output: the writer
//     takes control frames first.
//   - A connection that has died without saying so is noticed: by pings, by a
//     limit on each write, and by a look at the wall clock after a sleep.
//   - Only a reject or bye that the protocol calls final ends [Link.Run] with an
//     error; whatever else a server, proxy or network does is a reason to back
//     off and dial again, with the same epoch.
//   - No context that belongs to an instruction reaches the socket: in the
//     WebSocket library a cancelled write closes the whole connection.
//
// Each connection has a reader, a writer and a pinger; [Link.Run]'s own goroutine
// holds all decisions. The socket comes through [Network], so that the whole of
// it runs in virtual time over a network in memory.
package link
