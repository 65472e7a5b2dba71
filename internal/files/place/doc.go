// Package place puts content at a path in one step. There are three faces:
//
//   - Create: there, only if nothing was there;
//   - Replace: there, in place of whatever file was there;
//   - Guarded: there, only if what was there is the object that was expected.
//
// and Append, which is the third on a copy of what was there.
//
// Content is written to a [Stage] first, a file in the target's own folder that
// has no name where the file system can do that. A reader of the target sees the
// old content or the new, never less. A stage that is discarded, or whose step
// fails, leaves nothing behind. What has a name for a moment is in the [Journal]
// before it has it, so that [Placer.Recover] can tidy up after a crash.
//
// How a guarded step keeps its promise: there is no call "replace if it is that
// object", so the two names are exchanged and the object that came out is judged.
// If it is not the expected one, the names are exchanged back, again and again
// until what comes out is what was put in last. An object that someone else
// renamed in meanwhile therefore stays, or comes back. For that instant the target
// shows the new content although the answer will be `precondition_failed`.
//
// Steps of one process on one folder take turns; an advisory lock on the folder
// keeps other executors out of an exchange.
//
// What replaces a file takes over its mode, owner, access control list, extended
// attributes and label, as far as this process may set them. A file that this
// process could not write to is refused although its folder would let it be
// replaced. Other hard links of a replaced file keep the old content.
package place
