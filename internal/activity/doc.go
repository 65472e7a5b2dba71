// Package activity is the local record of what the server did on this machine:
// one line of JSON per instruction, appended to a file in the device's folder
// that only the owner can read, kept to a fixed size by rotation.
//
// It promises:
//
//   - An instruction never waits for the record. What the disk cannot keep up
//     with is left out, counted, and said in the record itself.
//   - A line says what kind of instruction it was, for which session, when, for
//     how long, how many bytes went which way and how it ended. Command text and
//     paths are in it only where the owner asked for them; file content, output,
//     environment values and failure messages never are.
//   - A command leaves a line when it begins and another when it ends, so one
//     that took the machine down with it is in the record too.
//   - A crash costs at most the lines that were not yet written. A line it tore
//     is passed over by readers and does not spoil the next one.
//   - A reader follows across rotations and sees each line once, in order; or it
//     knows that it was overtaken, and that lines may be missing.
package activity
