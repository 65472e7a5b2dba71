package simulation

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// farNetwork makes a network namespace behind a pair of interfaces, and returns a
// listener in there and a way to run nft in there.
func farNetwork(t *testing.T) (l net.Listener, nft func(rules string)) {
	t.Helper()
	lacks := func(why string) {
		if os.Getenv("SEMA_TEST_REQUIRE_ALL") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	if os.Geteuid() != 0 {
		lacks("a network of one's own needs root")
	}
	for _, name := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(name); err != nil {
			lacks(name + " is not installed; scripts/packages installs it")
		}
	}
	n := os.Getpid() % 16000
	space, here, there := fmt.Sprintf("simulation-%d", n), fmt.Sprintf("sim%da", n), fmt.Sprintf("sim%db", n)
	base := fmt.Sprintf("10.213.%d.", n/64)
	ours, theirs := fmt.Sprint(base, n%64*4+1), fmt.Sprint(base, n%64*4+2)
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", space).CombinedOutput(); err != nil {
		lacks(fmt.Sprintf("no network namespaces here: %v: %s", err, out))
	}
	t.Cleanup(func() {
		// The interface goes with its namespace.
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "netns", "delete", space).CombinedOutput(); err != nil {
			t.Errorf("ip netns delete: %v: %s", err, out)
		}
	})
	run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
	run("ip", "address", "add", ours+"/30", "dev", here)
	run("ip", "link", "set", here, "up")
	run("ip", "-n", space, "address", "add", theirs+"/30", "dev", there)
	run("ip", "-n", space, "link", "set", there, "up")
	l, err := listenIn("/run/netns/"+space, theirs+":0")
	if err != nil {
		t.Fatal(err)
	}
	return l, func(rules string) {
		t.Helper()
		run("ip", "netns", "exec", space, "nft", rules)
	}
}

// listenIn listens in another network namespace: a socket stays in the one it was
// made in.
func listenIn(space, address string) (net.Listener, error) {
	type made struct {
		l   net.Listener
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		f, err := os.Open(space)
		if err != nil {
			done <- made{nil, err}
			return
		}
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		if closed := f.Close(); err == nil {
			err = closed
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp", address)
		}
		done <- made{l, err}
	}()
	m := <-done
	return m.l, m.err
}

// remembering is a listener that knows its newest connection's other end.
type remembering struct {
	net.Listener
	port atomic.Int64
}

func (r *remembering) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			r.port.Store(int64(a.Port))
		}
	}
	return c, err
}

func TestPacketsDroppedInMidCommandCostNineSecondsAtMost(t *testing.T) {
	t.Parallel()
	far, nft := farNetwork(t)
	w := onThisMachine(t, Config{Heartbeat: 2 * time.Second, ReconnectGrace: time.Minute, Lease: 20 * time.Second, MaxInflight: 4, FirstGeneration: 1})
	_ = w.listener.Close()
	l := &remembering{Listener: far}
	w.listener, w.change = l, overTCP(t, far)
	ask := &Ask{Kind: wire.KindExecStream, Timeout: time.Minute, Program: Program{Seed: 70, Exit: 9}}
	for range 120 {
		// Little enough for the system's buffer: a write that does not end has a limit
		// of its own.
		ask.Program.Steps = append(ask.Program.Steps, Step{After: 100 * time.Millisecond, Stream: 1, Bytes: 80})
	}
	r := w.playWith(func() {
		w.dispatch(ask, 1, false)
		until(t, 20*time.Second, "the command prints", func() bool { return w.judge.hasHeard(ask) })
		// Everything of this connection, both ways, without a word to either end.
		port := l.port.Load()
		nft("add table ip lost; " +
			"add chain ip lost in { type filter hook input priority 0; }; " +
			"add chain ip lost out { type filter hook output priority 0; }; " +
			fmt.Sprintf("add rule ip lost in tcp sport %d drop; add rule ip lost out tcp dport %d drop", port, port))
		began := time.Now()
		limit, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.server.WaitFor(limit, w.device, func(s refserver.DeviceState) bool { return s.Active && s.Connections == 2 }); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		t.Logf("connected again after %v", took)
		if took > 9*time.Second {
			t.Errorf("connected again after %v", took)
		}
		w.calls.Wait()
	})
	for _, b := range r.Failures {
		t.Error(b)
	}
	if t.Failed() {
		t.Log(strings.Join(r.Trace, "\n"))
	}
	if how, heard := w.judge.end(ask); how.Outcome != wire.Outcome(wire.ExecOutcome{ExitCode: 9}) || heard != int64(ask.Program.total(1)) {
		t.Errorf("settled %+v with %d bytes", how, heard)
	}
}
