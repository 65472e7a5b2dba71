package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/handshake"
)

// slowKeychain takes its time for each key.
type slowKeychain struct {
	enroll.KeyStore
	takes time.Duration
}

func (s slowKeychain) Save(context.Context, enroll.KeyRef, handshake.PrivateKey) error {
	time.Sleep(s.takes)
	return nil
}

func (s slowKeychain) Load(context.Context, enroll.KeyRef) (handshake.PrivateKey, error) {
	time.Sleep(s.takes)
	return handshake.PrivateKey{}, nil
}

func (s slowKeychain) Delete(context.Context, enroll.KeyRef) error {
	time.Sleep(s.takes)
	return nil
}

func TestWhatIsWaitedForIsNamedOnceItTakesLong(t *testing.T) {
	const short, long = patience / 2, 3 * patience / 2
	for name, c := range map[string]struct {
		before, keychain, after time.Duration
		want                    string
	}{
		"nothing is slow":          {short, short / 4, short, ""},
		"the server":               {long, 0, short, "Talking\n"},
		"the keychain":             {short, long, short, "Waiting for the keychain\n"},
		"one after the other":      {long, long, long, "Talking\nWaiting for the keychain\nTalking\n"},
		"the server, after it all": {short, short, long, "Talking\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				p := newProgress(&app{stderr: &said}, "Talking")
				keychain := awaited{slowKeychain{takes: c.keychain}, p, "Waiting for the keychain"}
				time.Sleep(c.before)
				if err := keychain.Save(t.Context(), enroll.KeyRef{}, handshake.PrivateKey{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.after)
				p.stop()
				p.turn("Something that nobody waits for any more")
				time.Sleep(long)
				if got := strings.ReplaceAll(said.String(), " …", ""); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestEveryCallOfAKeyStoreIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		p := newProgress(&app{stderr: &said}, "Talking")
		keychain := awaited{slowKeychain{takes: 2 * patience}, p, "Waiting"}
		_ = keychain.Save(t.Context(), enroll.KeyRef{}, handshake.PrivateKey{})
		_, _ = keychain.Load(t.Context(), enroll.KeyRef{})
		_ = keychain.Delete(t.Context(), enroll.KeyRef{})
		p.stop()
		if got, want := said.String(), strings.Repeat("Waiting …\n", 3); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A session bus that takes calls and answers none is what a keychain looks like
// that hangs.
func TestEnrollSaysThatItWaitsForTheKeychain(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("hangs the bus of the Secret Service")
	}
	t.Parallel()
	m := newMachine(t)
	dir, err := os.MkdirTemp("/tmp", "sema-bus-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bus, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	m.env["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=" + bus.Addr().String()
	s := m.run("device", "enroll", "--server", m.url, "--workspace", t.TempDir())
	if s.code != 0 || !strings.Contains(s.stderr, "Waiting for the keychain …\n") {
		t.Errorf("%+v", s)
	}
}
