package main

import "syscall"

// adopt makes this process the parent of whatever in its tree loses its own.
func adopt() {
	const setChildSubreaper = 36
	syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}
