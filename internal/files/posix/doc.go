// Package posix is the ground under the file layer: the system calls that not
// every file system has, behind one interface; objects held by a handle that
// follows no link and needs no permission on the object; what an object is; and
// the one table from an errno to the protocol's error codes.
//
// Nothing here decides anything. A handle is a descriptor of the object itself
// (O_PATH on Linux, O_EVTONLY on macOS): as long as it is open, the object's inode
// number cannot be given to another object, so comparing numbers is exact.
package posix
