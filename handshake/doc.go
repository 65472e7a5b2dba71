// Package handshake proves who this device is: it turns a server's challenge
// into a signed hello and reads the answer (§1.3–§1.5 of the protocol).
//
// It promises three things. The signed bytes are exactly the protocol's, and
// nothing else is ever signed with a device's key: the only way to a signature
// is [Hello]. A [PrivateKey] cannot be printed, logged or marshalled by
// accident. And [Exchange] is over, one way or the other, within
// [wire.HandshakeDeadline] of being called.
package handshake
