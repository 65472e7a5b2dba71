// Package files is what this machine's file system is for the server: looks that
// tell the truth, reads that end, and writes that happen whole or not at all
// (§3.1, §3.4, §3.5, §6.5, §6.6).
//
// Paths come absolute and normalized; nothing is expanded, re-based or guessed.
// Errors are *[Error] with one of the protocol's codes and a message for the
// model, except where a context ended: then the error is its cause, and nothing
// of the operation's effect has happened (for Remove: no more of it will).
//
// # Containment
//
// With roots, everything happens below one of them or in the temporary folder. The
// decision is made on the real path of an opened folder or object, and the
// operation is then made relative to that very descriptor, so it holds whatever is
// swapped meanwhile; a link that stays inside a root works. What lies outside is
// `permission_denied`. A path that is not there is judged by the deepest folder on
// it that is.
//
// # What is followed
//
// Looks at a path (Info, Exists, Readlink, Remove) never follow its last link.
// Canonical, reads and List do; so do writes, which happen to the object the link
// leads to. A list's entries are never followed.
package files
