// Package enroll makes a machine a device of a server and keeps what that
// leaves behind: the device's record and its private key (§1.1).
//
// It promises:
//
//   - Tokens and credentials reach the named server and nothing else: no file,
//     no log, no redirect target. Their types cannot be printed.
//   - Every answer of the server becomes one error whose text says what
//     happened, whose advice says what to do, and whose exit code is the one
//     the command line documents ([ExitCode], [Advice]).
//   - Files appear whole or not at all, 0600 in folders that are 0700, and
//     members of a record that this version does not know are kept. A record
//     that cannot be read is named and left alone; it harms no other.
//   - A crash at any moment loses no device that could still be had.
//
// # The order that survives a crash
//
// An enrollment in progress lives in its own folder, SEMA_HOME/enrolling/, and
// goes through these states, each of them durable before the next begins:
//
//  1. record without a device id (server, workspace, public key, digest of the
//     token), then the private key in its store, read back;
//  2. registration at the server;
//  3. the device id in that record;
//  4. the folder renamed to SEMA_HOME/devices/<device id>.
//
// After a crash in 3 or 4 the next look at the records finishes the job. After
// a crash in 2 only the server knows the device id, and it repeats it for the
// same token and key: enrolling again with the same token takes up the folder
// it finds under the token's digest. The token itself is never written; where it
// was one that the server issued to us in passing, nobody can bring it again,
// and the next enrollment starts afresh. What nobody came back for is removed,
// key and all, after a day.
//
// Keys are filed under the public key, not the device id, so that step 4 moves
// nothing in a keychain.
package enroll
