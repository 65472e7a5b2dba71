package service

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// notifyVariable names systemd's socket for news of a service.
const notifyVariable = "NOTIFY_SOCKET"

// notifyPatience bounds a message: a manager that does not read is not waited for.
const notifyPatience = time.Second

// Notifier tells systemd how an executor does. Without systemd it says nothing.
// It may be used by several goroutines.
type Notifier struct {
	socket string

	mu   sync.Mutex
	last string // the status line systemd has
}

// TakeNotifier takes the socket that systemd passed out of the environment, so
// that commands do not inherit it: what they say is not for systemd.
func TakeNotifier() *Notifier {
	n := &Notifier{socket: os.Getenv(notifyVariable)}
	_ = os.Unsetenv(notifyVariable) // fails for malformed names only
	return n
}

// Ready says that the start is over: the lock is held and the executor is
// looking for its server. A server that is away is no failed start.
func (n *Notifier) Ready() error { return n.send("READY=1") }

// Stopping says that the executor is draining.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Status says in a line what the executor is doing; `systemctl status` and
// [State] show it. The same line again is not sent.
func (n *Notifier) Status(line string) error {
	line = strings.ReplaceAll(line, "\n", " ")
	n.mu.Lock()
	known := n.last == line
	n.last = line
	n.mu.Unlock()
	if known {
		return nil
	}
	return n.send("STATUS=" + line)
}

func (n *Notifier) send(message string) error {
	if n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell systemd %s: %w", message, err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyPatience)); err != nil {
		return fmt.Errorf("tell systemd %s: %w", message, err)
	}
	if _, err := conn.Write([]byte(message)); err != nil {
		return fmt.Errorf("tell systemd %s: %w", message, err)
	}
	return nil
}
