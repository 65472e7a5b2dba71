// Package posix is the ground under the file layer: the system calls that not
// every file system has, behind one interface; objects held by a handle that
// follows no link; what an object is; and the one table from an errno to the
// protocol's error codes.
//
// Nothing here decides anything. On Linux a handle is a descriptor of the object
// itself (O_PATH), which needs no permission on it: as long as it is open, the
// object's inode number cannot be given to another object, so comparing numbers is
// exact.
//
// macOS has no such descriptors. A handle there is one for events (O_EVTONLY), or of
// a folder one for searching (O_SEARCH); the first is opened as if for reading. So
// what may not be read, and what opening would touch (FIFOs, devices, sockets), is
// looked at and not held: [Object.FD] is -1. APFS gives no number twice, and the
// time of birth is compared, too.
package posix
