package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// torture is one way in which a command may try to outlive its end. In the text
// TOKEN is an argument of sleep that nothing else on the machine has, UID a user
// who has no processes, LIMIT some more processes than this user has.
type torture struct {
	name, text string
	many       int  // how many sleepers have to be up first
	root       bool // needs root
	ordinary   bool // not as root, whom ulimit -u does not bind
	namespace  bool // needs a pid namespace, which not every container gives its root
}

var haveNamespaces = sync.OnceValue(func() bool {
	return exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run() == nil
})

// fits reports whether it can be done here.
func (x torture) fits() bool {
	return !(x.root && os.Getuid() != 0 || x.ordinary && os.Getuid() == 0 || x.namespace && !haveNamespaces())
}

var tortures = []torture{
	{name: "sleep", text: "sleep TOKEN"},
	{name: "pipeline", text: "sleep TOKEN | sleep TOKEN | cat", many: 2},
	{name: "ignored TERM", text: "trap '' TERM HUP INT; sleep TOKEN & wait; sleep TOKEN"},
	{name: "setsid", text: "setsid sleep TOKEN & wait"},
	{name: "nohup", text: "nohup sleep TOKEN >/dev/null 2>&1 & wait"},
	{name: "double fork", text: "(setsid sh -c 'sleep TOKEN & exit' &); sleep TOKEN", many: 2},
	{name: "double fork, clean environment", text: "(env -i setsid /bin/sh -c '/bin/sleep TOKEN & exit' &); sleep TOKEN", many: 2},
	{name: "daemon", text: "setsid sh -c 'exec <&- >&- 2>&-; cd /; trap \"\" TERM; sleep TOKEN & sleep TOKEN & exit 0'; sleep TOKEN", many: 3},
	{name: "stopped child", text: "sleep TOKEN & sleep .3; kill -STOP $!; wait"},
	{name: "stopped shell", text: "sleep TOKEN & kill -STOP $$"},
	{name: "fork loop", many: 20, ordinary: true, text: "ulimit -u LIMIT; trap '' TERM; while :; do (sleep TOKEN &); done 2>/dev/null"},
	{name: "fork loop of another user", many: 20, root: true,
		text: "cd /; exec setpriv --reuid=UID --regid=UID --clear-groups bash -c 'ulimit -u 60; while :; do (sleep TOKEN &); done 2>/dev/null'"},
	{name: "closed output", text: "exec >&- 2>&-; sleep TOKEN & exec sleep TOKEN", many: 2},
	{name: "pid namespace", root: true, namespace: true, many: 2,
		text: "unshare --pid --fork --mount-proc /bin/sh -c 'trap \"\" TERM; setsid sleep TOKEN & sleep TOKEN; :'"},
	{name: "another user", root: true, text: "cd /; setpriv --reuid=UID --regid=UID --clear-groups setsid sleep TOKEN & wait"},
}

var tokens atomic.Int64

// victim is one torture on its way.
type victim struct {
	torture
	*started
	token string
	seen  map[proc]bool // every process of it that was ever looked at
}

// inflict starts a torture.
func (x torture) inflict(h *host, timeout time.Duration) (*victim, error) {
	n := tokens.Add(1)
	v := &victim{torture: x, token: fmt.Sprintf("9%d.%d", n, os.Getpid()), seen: map[proc]bool{}}
	what := shell(strings.NewReplacer("TOKEN", v.token, "UID", strconv.Itoa(300_000+os.Getpid()%50_000*64+int(n)%64),
		"LIMIT", strconv.Itoa(tasksOf(os.Getuid())+120)).Replace(x.text))
	what.TimeoutMs = timeout.Milliseconds()
	var err error
	v.started, err = h.start(what)
	return v, err
}

// look returns the live processes of the command: what carries its marker or its
// token, what was seen to belong to it before, and all that descends from those.
func (v *victim) look() (pids []int) {
	all := processes()
	family := map[int]bool{}
	for _, p := range all {
		family[p.pid] = v.seen[p.proc] || p.carries(process.Marker+"="+v.ID(), v.token)
	}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if !family[p.pid] && family[p.parent] {
				family[p.pid], grew = true, true
			}
		}
	}
	for _, p := range all {
		if family[p.pid] {
			v.seen[p.proc] = true
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// up reports whether the command has come to where it should be ended.
func (v *victim) up() bool {
	sleepers := 0
	for _, p := range processes() {
		if p.sleeps(v.token) {
			sleepers++
		}
	}
	if sleepers < max(1, v.many) {
		return false
	}
	v.look()
	return true
}

// gone fails the test unless everything of the command is dead within four seconds.
func (v *victim) gone(t *testing.T, after string) {
	t.Helper()
	deadline := time.Now().Add(4 * time.Second)
	for {
		left := v.look()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: four seconds after the %s, %v are alive", v.name, after, left)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// each does something with every torture for this user, several at a time.
func each(t *testing.T, h *host, timeout time.Duration, do func(v *victim)) {
	t.Helper()
	var all sync.WaitGroup
	for _, x := range tortures {
		if !x.fits() {
			continue
		}
		all.Go(func() {
			deadline := time.Now().Add(time.Minute)
			for {
				v, err := x.inflict(h, timeout)
				if err != nil {
					t.Error(err)
					return
				}
				if v.comesUp(t, deadline) {
					do(v)
					return
				}
				how, _ := v.Wait(context.Background())
				if how.Outcome != choked || time.Now().After(deadline) {
					t.Errorf("%s: not up within a minute: %+v", v.name, how)
					return
				}
			}
		})
	}
	all.Wait()
}

// comesUp waits until the command is up, or over.
func (v *victim) comesUp(t *testing.T, deadline time.Time) bool {
	t.Helper()
	for !v.up() {
		if time.Now().After(deadline) {
			v.Cancel()
		}
		select {
		case <-v.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return true
}

// choked is how bash ends when it cannot fork for a quarter of a minute, which
// happens to the fork loop of an ordinary user who has other things running.
var choked = wire.Outcome(wire.ExecOutcome{ExitCode: 254})

// besides lets a test run beside others, unless all have one user's processes to
// share among their fork loops.
func besides(t *testing.T) {
	if os.Getuid() == 0 {
		t.Parallel()
	}
}

func (v *victim) settled(t *testing.T, want any) {
	t.Helper()
	a, err := v.answer(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	if v.ordinary && a.Outcome == choked {
		return
	}
	a.wants(t, v.name, want)
}

// TestNothingOutlivesItsInstruction: after a cancel, a timeout, a fence, and the
// executor's own death, no process of any command is left.
func TestNothingOutlivesItsInstruction(t *testing.T) {
	again := rounds(t, 1)
	c := refserver.Config{MaxInflight: len(tortures), Takeover: refserver.TakeoverAny}
	under := func(name string, round func(t *testing.T, h *host, restart func())) {
		t.Run(name, func(t *testing.T) {
			besides(t)
			dir, workspace := workspaceOf(t)
			if err := os.Chmod(filepath.Dir(workspace), 0o711); err != nil {
				t.Fatal(err)
			}
			h := newHost(t, c, workspace)
			t.Cleanup(func() { h.blameless(t) })
			x := child(t, h, dir, workspace)
			activate(t, h.Server, h.device)
			for range again {
				round(t, h, func() {
					if err := x.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					_ = x.Wait()
					x = child(t, h, dir, workspace)
				})
			}
		})
	}
	dead := func(t *testing.T, v *victim, what string) {
		t.Helper()
		if left := v.look(); len(left) > 0 {
			t.Errorf("%s: %s, but %v are alive", v.name, what, left)
		}
	}
	under("cancel", func(t *testing.T, h *host, _ func()) {
		each(t, h, time.Hour, func(v *victim) {
			v.Cancel()
			v.settled(t, wire.CancelledOutcome{State: wire.CancelKilled})
			dead(t, v, "called killed")
		})
	})
	under("timeout", func(t *testing.T, h *host, _ func()) {
		each(t, h, 8*time.Second, func(v *victim) {
			v.settled(t, wire.CodeTimeout)
			dead(t, v, "said timeout")
		})
	})
	under("fence", func(t *testing.T, h *host, _ func()) {
		victims := gather(t, h)
		h.reactivated(t, h.Restart) // another replica, which knows of none of them
		for _, v := range victims {
			dead(t, v, "fenced")
		}
	})
	under("kill -9", func(t *testing.T, h *host, restart func()) {
		victims := gather(t, h)
		h.reactivated(t, restart)
		for _, v := range victims {
			v.gone(t, "next start")
			v.settled(t, wire.CodeOutcomeUnknown)
		}
	})
}

// gather brings all tortures up and leaves them there.
func gather(t *testing.T, h *host) (victims []*victim) {
	t.Helper()
	var mu sync.Mutex
	each(t, h, time.Hour, func(v *victim) {
		mu.Lock()
		defer mu.Unlock()
		victims = append(victims, v)
	})
	for _, v := range victims {
		v.look()
	}
	return victims
}

// proc names a process for the whole boot.
type proc struct {
	pid   int
	start string
}

// seenProcess is a live process at one moment.
type seenProcess struct {
	proc
	parent int
}

// processes lists what lives: not what is gone, not zombies.
func processes() map[int]seenProcess {
	all := map[int]seenProcess{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may contain anything.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		all[pid] = seenProcess{proc{pid, f[19]}, parent}
	}
	return all
}

// sleeps reports whether it is the sleep of a token.
func (p proc) sleeps(token string) bool {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return bytes.HasSuffix(args, []byte("sleep\x00"+token+"\x00"))
}

// carries reports whether it has the marker in its environment or sleeps the
// token's sleep.
func (p proc) carries(marker, token string) bool {
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return bytes.Contains(append([]byte{0}, env...), []byte("\x00"+marker+"\x00")) || p.sleeps(token)
}

// tasksOf counts the threads of a user.
func tasksOf(uid int) (n int) {
	for pid := range maps.Keys(processes()) {
		var st syscall.Stat_t
		if syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && int(st.Uid) == uid {
			tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
			n += len(tasks)
		}
	}
	return n
}
