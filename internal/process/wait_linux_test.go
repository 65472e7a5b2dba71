package process

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eventually polls until ok, for what no channel tells.
func eventually(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", d, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// readable: the supervisor has said that it is ready.
func readable(ch *channel) (yes bool) {
	_ = ch.raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		yes = err == nil && n == 1
	})
	return yes
}

func awaitStandby(t testing.TB, c Control) {
	t.Helper()
	eventually(t, 10*time.Second, "a supervisor started ahead", func() bool {
		c := c.(*control)
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.idle) > 0 && (c.idle[len(c.idle)-1].serial > 0 || readable(c.idle[len(c.idle)-1].ch))
	})
}
