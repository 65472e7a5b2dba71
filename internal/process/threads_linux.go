package process

import (
	"runtime"
	"sync"
)

// Threads kept in reserve: what waits in the kernel at one time (a look through
// /proc, a fork, the wait for a signal or a child), with some to spare.
const (
	helperThreads   = 3
	executorThreads = 8
)

// reserveThreads makes the runtime start n threads now. A command can use up every
// process and thread that its user, or its container, may have; a Go program that
// then needs one more thread is ended by its runtime. Threads that have nothing to
// do stay with the program, so those that it has now are those that it will need.
func reserveThreads(n int) {
	var held, over sync.WaitGroup
	release := make(chan struct{})
	held.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread() // to this goroutine alone: each has one of its own
			defer runtime.UnlockOSThread()
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	over.Wait()
}
