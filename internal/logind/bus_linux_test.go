package logind

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// privateBus starts a message bus of the test's own and returns its address.
func privateBus(t *testing.T) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("there is no dbus-daemon on this machine")
	}
	cmd := exec.Command(daemon, "--session", "--nofork", "--nopidfile", "--print-address", "--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// login is a login manager on a private bus.
type login struct {
	conn  *dbus.Conn
	held  chan *os.File // our ends of the locks given out
	given chan *os.File // the other ends, of which the caller has a copy
}

// Inhibit is called over the bus.
func (l *login) Inhibit(what, who, why, mode string) (dbus.UnixFD, *dbus.Error) {
	if what != "sleep" || mode != "delay" || who == "" || why == "" {
		return 0, dbus.NewError("org.example.Wrong", []any{what, who, why, mode})
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	l.held <- ours
	l.given <- theirs
	return dbus.UnixFD(theirs.Fd()), nil
}

func newLogin(t *testing.T, address string) *login {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	l := &login{conn: conn, held: make(chan *os.File, 4), given: make(chan *os.File, 4)}
	t.Cleanup(func() {
		_ = conn.Close()
		for { // not closed: a call that came in last may still be giving
			select {
			case f := <-l.given:
				_ = f.Close()
			default:
				return
			}
		}
	})
	if err := conn.Export(l, object, iface); err != nil {
		t.Fatal(err)
	}
	reply, err := conn.RequestName(service, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("name: %v, %v", reply, err)
	}
	return l
}

func dialTo(address string) func(...dbus.ConnOption) (*dbus.Conn, error) {
	return func(o ...dbus.ConnOption) (*dbus.Conn, error) { return dbus.Connect(address, o...) }
}

func TestSleepIsHeardOverARealBus(t *testing.T) {
	address := privateBus(t)
	manager := newLogin(t, address)
	m, err := connect(t.Context(), dialTo(address))
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 8)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Watch(ctx, m, quiet, func(context.Context) { events <- "sleep" }, func() { events <- "wake" })
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Fatalf("%s came where %s was due", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s did not come", want)
		}
	}
	for range 2 {
		select {
		case ours := <-manager.held:
			defer ours.Close()
		case <-time.After(10 * time.Second):
			t.Fatal("no lock was taken")
		}
		for _, step := range []struct {
			asleep bool
			want   string
		}{{true, "sleep"}, {false, "wake"}} {
			if err := manager.conn.Emit(object, iface+"."+sleepName, step.asleep); err != nil {
				t.Fatal(err)
			}
			expect(step.want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestABusThatGoesAwayIsReported(t *testing.T) {
	address := privateBus(t)
	newLogin(t, address)
	m, err := connect(t.Context(), dialTo(address))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Watch(t.Context(), m, quiet, func(context.Context) {}, func() {}) }()
	_ = m.(*bus).conn.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("nothing was reported")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the watch went on")
	}
}

func TestWithoutALoginManagerConnectSaysSo(t *testing.T) {
	if _, err := connect(t.Context(), dialTo(privateBus(t))); !errors.Is(err, ErrUnavailable) {
		t.Errorf("no service: %v", err)
	}
	nothing := "unix:path=" + filepath.Join(t.TempDir(), "none")
	if _, err := connect(t.Context(), dialTo(nothing)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("no bus: %v", err)
	}
}

func TestABusThatNeverAnswersIsGivenUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mute")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now()
	if _, err := connect(t.Context(), dialTo("unix:path="+path)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("err = %v", err)
	}
	if took := time.Since(start); took > callLimit+2*time.Second {
		t.Errorf("it took %v", took)
	}
}
