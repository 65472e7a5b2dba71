package logind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	service   = "org.freedesktop.login1"
	object    = "/org/freedesktop/login1"
	iface     = "org.freedesktop.login1.Manager"
	sleepName = "PrepareForSleep"

	// callLimit bounds every call: a bus may accept and never answer.
	callLimit = 3 * time.Second
)

// Connect reaches the login manager over the system bus, within a few seconds. The
// error wraps ErrUnavailable where there is none.
func Connect(ctx context.Context) (Manager, error) {
	return connect(ctx, dbus.ConnectSystemBus)
}

func connect(ctx context.Context, dial func(...dbus.ConnOption) (*dbus.Conn, error)) (Manager, error) {
	busCtx, cancel := context.WithCancel(ctx)
	hurry := time.AfterFunc(callLimit, cancel) // the library's authentication has no limit of its own
	conn, err := dial(dbus.WithContext(busCtx))
	if !hurry.Stop() && err == nil {
		_ = conn.Close()
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%w: system bus: %w", ErrUnavailable, err)
	}
	b := &bus{conn: conn, cancel: cancel}
	limit, done := context.WithTimeout(ctx, callLimit)
	defer done()
	if err := b.has(limit, service); err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return b, nil
}

type bus struct {
	conn   *dbus.Conn
	cancel context.CancelFunc
}

// has asks the service for a sign of life, which starts it if it can be started.
func (b *bus) has(ctx context.Context, name string) error {
	call := b.conn.Object(name, object).CallWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", 0)
	return call.Err
}

// Sleeping implements Manager.
func (b *bus) Sleeping(ctx context.Context) (<-chan bool, error) {
	limit, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	raw := make(chan *dbus.Signal, 8)
	b.conn.Signal(raw) // closed by the library when the connection ends
	err := b.conn.AddMatchSignalContext(limit, dbus.WithMatchInterface(iface), dbus.WithMatchMember(sleepName), dbus.WithMatchObjectPath(object))
	if err != nil {
		return nil, fmt.Errorf("listen for sleep: %w", err)
	}
	out := make(chan bool)
	go func() {
		defer close(out)
		for s := range raw {
			if s.Name != iface+"."+sleepName || len(s.Body) != 1 {
				continue
			}
			asleep, ok := s.Body[0].(bool)
			if !ok {
				continue
			}
			select {
			case out <- asleep:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Inhibit implements Manager.
func (b *bus) Inhibit(ctx context.Context, who, why string) (io.Closer, error) {
	limit, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var fd dbus.UnixFD
	if err := b.conn.Object(service, object).CallWithContext(limit, iface+".Inhibit", 0, "sleep", who, why, "delay").Store(&fd); err != nil {
		return nil, fmt.Errorf("delay sleep: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sleep lock")
	if f == nil {
		return nil, errors.New("delay sleep: the login manager gave no lock")
	}
	return f, nil
}

// Close implements Manager.
func (b *bus) Close() error {
	err := b.conn.Close()
	b.cancel()
	return err
}
