// Package conformance judges any executor by the protocol alone.
//
// It drives an executor process from outside: through one command line that
// enrolls it and one that starts it, against a reference server of its own. Each
// row is one promise of the guide, named with its section; a row passes, fails with
// what was found and the frames of the exchange, or is not applicable because the
// executor does not declare the kind it is about (§3.2) or because this system
// offers no way to look.
//
// It believes nothing that can be looked at. Whether a command is dead, what is in
// a file, who listens on a socket, how much memory is held and which key signed is
// read from the system and from the wire, never from the executor's own words.
//
// Rows run side by side, each in a folder and against a server of its own. What
// the reference server objects to during a row fails the row, whatever it is about.
// A few rows that fail are judged once more, alone, as a busy machine can cost a row
// its patience; what was found beside the others is told as well.
//
// Where the guide leaves a choice a row takes either, and it measures no time more
// tightly than the guide does: it is to fail nobody for being another than the
// executor of this module. allowed_test.go shows that of executors that differ, as
// broken_test.go shows that broken ones fail.
//
// # The two command lines
//
// Both are given to /bin/sh -c as they are. Signals go to what a line runs: to the
// process that took the shell's place, as that of a line's last command mostly does, or
// else to those that the shell has started. In a line these words are replaced, quoted
// for the shell:
//
//	{server}      the reference server's address, http://127.0.0.1:PORT
//	{home}        an empty folder (0700) for the executor's own files
//	{workspace}   the folder to enroll as workspace root
//	{credential}  the bearer credential for the two enrollment calls
//
// The lines run in the row's folder, so programs are named by their whole path. The
// words are in the environment too, as SEMA_SERVER, SEMA_HOME, SEMA_WORKSPACE and
// SEMA_CREDENTIAL, the credential for the enrolling line only. TMPDIR and HOME are
// folders of the row's, the variables of XDG's folders are unset, and so is that of the
// session bus, lest a row reach the keychain of whoever runs the suite. A key that is
// in no file of the row's cannot be looked at, and its rows are not applicable.
//
// The enrolling line ends with code 0 once the device is registered; it may be run
// again for the same folder. The starting line runs until a signal ends it; it may be
// run again, and then it is a new process with the same identity.
//
// What both print is kept, up to a bound, and searched for what must not be there,
// nothing else. At the end of a row whatever they left running is killed, as far as
// the system shows it.
package conformance
