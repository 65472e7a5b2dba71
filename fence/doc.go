// Package fence answers one question: what must be dead or mended before this
// executor goes on?
//
// Three things are kept apart. [LockDevice] keeps a second executor on this machine
// from serving the same device (R10, §6.10). [Ledger] tells the next start what a crash
// left behind: processes to end, files to take back. [Reconcile] tells a new
// connection what the server's list means for the work at hand (§1.5).
package fence
