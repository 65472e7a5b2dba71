// Package refserver is the server's half of the device executor protocol, as a
// library: strict where the protocol says a server is strict, with its clock,
// its randomness and its network passed in, and with faults to order. Executor
// authors test against it, `sema device try` runs over it, and the conformance
// suite judges with it. It shares only package wire with the executor.
//
// # Use
//
//	s := refserver.New(refserver.Config{})
//	defer s.Close()
//	go s.Serve(listener)                       // or use s as an http.Handler
//	// … enroll and start an executor against the listener's address …
//	err := s.WaitActive(ctx, deviceID)
//	call, err := s.Dispatch(ctx, deviceID, refserver.Dispatch{
//		Kind: wire.KindExec, Args: wire.ExecArgs{Command: "uname"}, TimeoutMs: 60_000,
//		Deliver: func(kind wire.ChunkKind, data []byte) error { … },
//	})
//	settlement, err := call.Wait(ctx)
//	if v := s.Violations(); len(v) > 0 { … }   // what the executor did wrong
//
// An executor that is under test without HTTP enrollment is added with
// [Server.AddDevice]. Any bearer credential is an identity of its own unless
// [Config.Identify] says otherwise.
//
// # Refusals
//
// Whatever a server must refuse is refused and recorded as a [Violation] with
// the protocol's reason: ids (their beginning, if a device made them long),
// types, sizes and numbers, never content. Some
// things that a server cannot punish, but that the protocol forbids an executor,
// are recorded as well, with Refused false. [Server.Violations] leaves out what
// an honest executor cannot avoid (a frame that crosses a bye on the wire, a
// mistyped token); [Server.Audit] has everything.
//
// # Decisions where the protocol leaves room
//
//   - The lease is given back when the server sees the socket close;
//     [Config.KeepLease] keeps it until it runs out. Every frame renews it.
//   - A hello of the same epoch takes the lease over at once; the old socket
//     hears bye superseded, and what is in flight is bound to the new
//     generation. A hello of another epoch is refused already_connected while
//     the lease is held, unless [Config.Takeover] says otherwise. A server may
//     be less kind: to be refused for one's own half-open connection (§1.4) is
//     what [TakeoverNever] does.
//   - Work asked for while the device has no connection, after its goodbye, or
//     still queued when its connection goes, has never started:
//     target_unavailable. Work queued under an earlier connection's supports
//     that the present one does not declare is not_supported.
//   - A result that comes while its stream has a gap, or a broken stream under
//     a successful outcome, settles as outcome_unknown. Failed and cancelled
//     outcomes are always believed. A receipt or a canonicalPath that is not
//     absolute and normal, and a file's info without a path or with a negative
//     size, count as the wrong kind of outcome does.
//   - A device that has answered owes nothing more: while its result waits for
//     the consumer, neither the execution ceiling, nor the cancel grace, nor a
//     gap can overturn it. A lost connection, a new epoch and a bye still can.
//   - A result is acknowledged once its settlement is in the books, which waits
//     for the consumer to have taken every chunk before it.
//
// # Time and concurrency
//
// Timers are package time's, so a Server runs inside a testing/synctest bubble
// over any net.Listener; Config.Now is read for what a wall clock shows (token
// expiry, rate windows, ids, records). One mutex guards all state and is held
// over memory work, Config.Rand and Config.Log only; each connection has one
// reading and one writing goroutine, each call with a consumer one more;
// [Server.Close] waits for all. Hooks and consumers run without the mutex and
// may call the Server, except for Close; a log handler may not.
package refserver
