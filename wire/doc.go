// Package wire is the vocabulary of the device executor protocol: every frame
// in both directions, every closed set, every limit, and the two codecs.
//
// The decoders have different tempers. [DecodeDevice] is the server's ear: it
// refuses whatever the protocol tells a server to refuse and says which of the
// protocol's reasons applies. [DecodeServer] is the executor's ear: it ignores
// frame types and members it does not know, and is strict about what it uses.
//
// Encoding is exact and bounded: no frame leaves larger than the limit of its
// phase ([MaxPreAuthFrameBytes] for a hello, [MaxFrameBytes] for all others).
package wire
