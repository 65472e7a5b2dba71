// Package executor is one device's executor, put together from its parts: the
// instance lock, what a crash left to be mended, process control, files, outbox,
// dispatcher, link, and the status file.
//
// It promises that at most one executor of a device runs on this machine; that
// what an earlier one left behind is ended and tidied up before the server hears
// of this one; that the identity it states never changes while it runs; and that
// however [Executor.Run] returns, every command it started has been ended first,
// or is named in its error.
//
// Everything that reaches outside (network, processes, files, clocks, randomness,
// the suspend signal) comes in through [Config], so that the whole of it runs in
// virtual time.
package executor
