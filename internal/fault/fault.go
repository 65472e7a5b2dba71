// Package fault breaks the executor on purpose.
//
// A test that never fails proves nothing. The places in this module where a
// promise is kept ask On whether to break it, each under a name of its own; a
// test then shows that the broken executor is caught. Without the build tag
// `faults` On is the constant false and the compiler removes the question, so a
// released executor has no such switch.
//
// With the tag, the faults in force are those named in the variable SEMA_FAULT
// (comma-separated) and those a test has put in force with Set.
//
// A name is written where it is asked, as a literal "package: what goes wrong",
// so that searching for `fault.On(` lists them all.
package fault
