package instructions

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/internal/process"
	"github.com/sema-agent/device-executor/outbox"
	"github.com/sema-agent/device-executor/wire"
)

func TestMain(m *testing.M) {
	process.RunIfSupervisor()
	os.Exit(m.Run())
}

// machine is a dispatcher that runs real commands, with an ear that is always open.
type machine struct {
	t   testing.TB
	d   *Dispatcher
	o   *outbox.Outbox
	dir string

	mu      sync.Mutex
	ear     *ear
	arrived map[string]time.Time // of the first chunk
	news    chan struct{}        // closed and replaced when something was heard
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	control, err := process.New(process.Config{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir, ear: newEar(), arrived: map[string]time.Time{}, news: make(chan struct{})}
	o := outbox.New(outbox.Config{Log: log})
	m.o = o
	o.Resume("1", nil, nil)
	h := Exec(ExecConfig{Control: control, Workspace: dir, Env: os.Environ(), Log: log})
	m.d = New(Config{Outbox: o, Handlers: handlers{wire.KindExec: h, wire.KindExecStream: h}, Log: log, Now: time.Now})
	m.d.SetMaxInflight(8)

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			m.mu.Lock()
			heard := false
			for m.ear.hear(t, o) {
				heard = true
			}
			now := time.Now()
			for id := range m.ear.chunks {
				if m.arrived[id].IsZero() {
					m.arrived[id] = now
				}
			}
			if heard {
				close(m.news)
				m.news = make(chan struct{})
			}
			m.mu.Unlock()
			select {
			case <-o.Ready():
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		if err := m.d.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		close(stop)
		<-stopped
		if err := control.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// until waits until what was heard satisfies ok.
func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	late := time.After(60 * time.Second)
	for {
		m.mu.Lock()
		done, news := ok(), m.news
		m.mu.Unlock()
		if done {
			return
		}
		select {
		case <-news:
		case <-late:
			m.t.Fatalf("%s: not within a minute", what)
		}
	}
}

func (m *machine) start(id, command string) {
	raw, err := wire.AppendArgs(nil, wire.ExecArgs{Command: command})
	if err != nil {
		m.t.Fatal(err)
	}
	m.d.Instruct(ask(id, wire.KindExec, string(raw)))
}

func (m *machine) outcome(id string) wire.Outcome {
	m.t.Helper()
	m.until(id, func() bool { return len(m.ear.results[id]) > 0 })
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ear.results[id][0]
}

// run runs a command to its end.
func (m *machine) run(id, command string) (outcome, stdout, stderr string) {
	m.t.Helper()
	m.start(id, command)
	outcome = describe(m.outcome(id))
	return outcome, m.said(id, wire.ChunkStdout), m.said(id, wire.ChunkStderr)
}

func (m *machine) said(id string, kind wire.ChunkKind) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ear.text(id, kind)
}

// alive reports whether pid is there and no zombie.
func alive(t testing.TB, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatalf("%q is not a pid", pid)
	}
	if syscall.Kill(n, 0) == syscall.ESRCH {
		return false
	}
	if runtime.GOOS != "linux" {
		return true // an orphan is reaped at once
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
	if errors.Is(err, os.ErrNotExist) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestRealCommands(t *testing.T) {
	m := newMachine(t)
	long := strings.Repeat("x", 1<<17)
	table := []struct {
		name, command, outcome, stdout, stderr string
	}{
		{"two streams", "echo out; echo err >&2; exit 7", "exec 7", "out\n", "err\n"},
		{"nothing", "", "exec 0", "", ""},
		{"exit code", "exit 255", "exec 255", "", ""},
		{"signal", "kill -9 $$", "exec 137", "", ""},
		{"term", "kill -TERM $$", "exec 143", "", ""},
		{"a word that looks like an option", "-c 2>/dev/null; echo on", "exec 0", "on\n", ""},
		{"stdin", "read x; echo $?", "exec 0", "1\n", ""},
		{"folder", "pwd", "exec 0", m.dir + "\n", ""},
		{"marker", "echo $SEMA_INSTRUCTION_ID", "exec 0", "marker\n", ""},
		{"syntax error", "if; 2>/dev/null", "exec 2", "", "*"},
		{"missing program", "/nonexistent/program 2>/dev/null", "exec 127", "", ""},
		{"at the argument limit", ": " + long[:131072-7] + "\necho ok", "exec 0", "ok\n", ""},
		{"above the argument limit", ": " + long + "\necho ok; echo err >&2; exit 3", "exec 3", "ok\n", "err\n"},
		{"far above it", ": " + strings.Repeat(long, 7) + "\nread x; echo $? $SEMA_INSTRUCTION_ID", "exec 0", "1 far above it\n", ""},
		{"invalid UTF-8", `printf 'a\377\000\200b'`, "exec 0", "a\xff\x00\x80b", ""},
		{"last words", "(sleep .5; echo tail) & echo head", "exec 0", "head\ntail\n", ""},
		{"a pipeline", "seq 1 100000 | tail -1", "exec 0", "100000\n", ""},
		{"no terminal", "{ echo >/dev/tty; } 2>/dev/null || echo none", "exec 0", "none\n", ""},
	}
	for _, row := range table {
		outcome, stdout, stderr := m.run(row.name, row.command)
		if outcome != row.outcome || stdout != row.stdout || stderr != row.stderr && row.stderr != "*" {
			t.Errorf("%s: %s, stdout %.300q, stderr %.300q; want %s, %q, %q", row.name, outcome, stdout, stderr, row.outcome, row.stdout, row.stderr)
		}
	}
}

func TestRealSecretsStayOut(t *testing.T) {
	t.Setenv("SEMA_CREDENTIAL", "hush")
	t.Setenv("SEMA_ENROLL_TOKEN", "hush")
	m := newMachine(t)
	if _, out, _ := m.run("x", "env"); strings.Contains(out, "hush") || !strings.Contains(out, "PATH=") {
		t.Errorf("environment %s", out)
	}
}

func TestRealFoldersThatCannotBeUsed(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(m.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]wire.ErrorCode{filepath.Join(m.dir, "missing"): wire.CodeNotFound, file: wire.CodeNotDirectory} {
		in := ask(cwd, wire.KindExec, aCommand)
		in.Cwd = cwd
		m.d.Instruct(in)
		if f, ok := m.outcome(cwd).(wire.Failure); !ok || f.Code != want || !strings.Contains(f.Message, cwd) {
			t.Errorf("%s: %+v, want %s naming the folder", cwd, f, want)
		}
	}
}

func TestRealVariablesThatAreTooLarge(t *testing.T) {
	m := newMachine(t)
	in := ask("one", wire.KindExec, aCommand)
	in.ShellEnv = map[string]string{"SMALL": "1", "LARGE": strings.Repeat("x", 4<<20)}
	m.d.Instruct(in)
	if f, ok := m.outcome("one").(wire.Failure); !ok || f.Code != wire.CodeSpawnError || !strings.Contains(f.Message, "LARGE") {
		t.Errorf("%+v, want spawn_error naming LARGE", f)
	}
	in = ask("many", wire.KindExec, aCommand)
	in.ShellEnv = map[string]string{}
	for i := range 80 {
		in.ShellEnv[fmt.Sprint("V", i)] = strings.Repeat("x", 100<<10)
	}
	m.d.Instruct(in)
	if f, ok := m.outcome("many").(wire.Failure); !ok || f.Code != wire.CodeSpawnError || !strings.Contains(f.Message, "V") {
		t.Errorf("%+v, want spawn_error naming a variable", f)
	}
}

func TestRealSleeperIsEndedWithItsCommand(t *testing.T) {
	m := newMachine(t)
	start := time.Now()
	outcome, out, _ := m.run("x", "sleep 300 & echo $!")
	if took := time.Since(start); outcome != "exec 0" || took > 2*time.Second {
		t.Errorf("%s after %v", outcome, took)
	}
	if alive(t, out) {
		t.Errorf("the sleeper, pid %s, lives", out)
	}
}

func TestRealCancelEndsTheWholeTree(t *testing.T) {
	m := newMachine(t)
	for name, command := range map[string]string{
		"last words":  `trap 'echo bye; exit 7' TERM; sleep 99 & echo $!; wait`,
		"ignores":     `trap '' TERM; sleep 99 & echo $!; wait`,
		"new session": `setsid sleep 99 & echo $!; wait`,
	} {
		m.start(name, command)
		m.until(name, func() bool { return strings.Contains(m.ear.text(name, wire.ChunkStdout), "\n") })
		start := time.Now()
		m.d.Cancel(name)
		if got := describe(m.outcome(name)); got != "cancelled killed" {
			t.Errorf("%s: %s", name, got)
		}
		if took := time.Since(start); took > grace+time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		pid, words, _ := strings.Cut(m.said(name, wire.ChunkStdout), "\n")
		if alive(t, pid) {
			t.Errorf("%s: pid %s lives", name, pid)
		}
		if name == "last words" && words != "bye\n" {
			t.Errorf("last words %q", words)
		}
	}
}

func TestRealCancelWhileNobodyListens(t *testing.T) {
	m := newMachine(t)
	m.mu.Lock() // the ear is closed
	defer m.mu.Unlock()
	within := func(what string, limit time.Duration, ok func() bool) {
		t.Helper()
		for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
			if time.Since(start) > limit {
				t.Fatalf("%s: not within %v", what, limit)
			}
		}
	}
	for i := range 8 {
		m.start(fmt.Sprint(i), "yes 'print without end'")
	}
	within("all are held back", time.Minute, func() bool { return m.o.Stats().Waiting == 8 })
	if held := m.o.Stats().PeakBytes; held > 8<<20 {
		t.Errorf("%d bytes are held for eight commands", held)
	}
	for i := range 8 {
		m.d.Cancel(fmt.Sprint(i))
	}
	within("all are cancelled", sizeOfRealTests*time.Second, func() bool { return len(m.d.Inflight()) == 0 })
}

func TestRealTimeout(t *testing.T) {
	m := newMachine(t)
	raw, _ := wire.AppendArgs(nil, wire.ExecArgs{Command: "echo $$; sleep 99"})
	m.d.Instruct(askWithin("x", wire.KindExec, string(raw), 300*time.Millisecond))
	if got := describe(m.outcome("x")); got != "timeout" {
		t.Errorf("%s", got)
	}
	if pid := m.said("x", wire.ChunkStdout); alive(t, pid) {
		t.Errorf("pid %s lives", pid)
	}
}

func TestRealOutputIsExact(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(m.dir, "random")
	random := make([]byte, 5<<20/sizeOfRealTests+7)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(random)
	if err := os.WriteFile(file, random, 0o600); err != nil {
		t.Fatal(err)
	}
	const lineBytes, singles = 100_000_000 / sizeOfRealTests, 1_000_000 / sizeOfRealTests
	line := bytes.Repeat([]byte("x"), lineBytes)
	for _, row := range []struct {
		name, command string
		want          []byte
	}{
		{"binary", "cat random", random},
		{"to both", "cat random; cat random >&2", random},
		{"one line", fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, lineBytes), line},
		{"byte by byte", fmt.Sprintf("dd if=random bs=1 count=%d status=none", singles), random[:singles]},
	} {
		outcome, out, errs := m.run(row.name, row.command)
		if outcome != "exec 0" || sha256.Sum256([]byte(out)) != sha256.Sum256(row.want) {
			t.Errorf("%s: %s, %d bytes, want %d; or they differ", row.name, outcome, len(out), len(row.want))
		}
		if row.name == "to both" && errs != string(random) {
			t.Errorf("stderr: %d bytes, want %d; or they differ", len(errs), len(random))
		}
		m.mu.Lock()
		if n := len(m.ear.chunks[row.name]); row.name == "byte by byte" && n > 5000 {
			t.Errorf("%d bytes went out in %d chunks", singles, n)
		}
		delete(m.ear.chunks, row.name)
		m.mu.Unlock()
	}
}

func TestRealLineAppearsWithin50Milliseconds(t *testing.T) {
	m := newMachine(t)
	best := time.Hour
	for i := range 5 { // the machine may be busy: the best counts
		id := fmt.Sprint(i)
		m.start(id, "date +%s.%N; sleep 20")
		m.until(id, func() bool { return strings.Contains(m.ear.text(id, wire.ChunkStdout), "\n") })
		m.mu.Lock()
		arrived := m.arrived[id]
		m.mu.Unlock()
		s, err := strconv.ParseFloat(strings.TrimSpace(m.said(id, wire.ChunkStdout)), 64)
		if err != nil {
			t.Skip("this date knows no nanoseconds")
		}
		best = min(best, arrived.Sub(time.Unix(0, int64(s*1e9))))
		m.d.Cancel(id)
		m.outcome(id)
	}
	if best > 50*time.Millisecond {
		t.Errorf("a line takes %v to appear", best)
	}
}

func TestRealCommandsInParallel(t *testing.T) {
	m := newMachine(t)
	for i := range 20 {
		m.start(fmt.Sprint(i), fmt.Sprintf("seq %d 20000; exit %d", i, i))
	}
	for i := range 20 {
		id := fmt.Sprint(i)
		var want strings.Builder
		for n := i; n <= 20000; n++ {
			fmt.Fprintln(&want, n)
		}
		if got := describe(m.outcome(id)); got != "exec "+id {
			t.Errorf("%s: %s", id, got)
		}
		if m.said(id, wire.ChunkStdout) != want.String() {
			t.Errorf("%s: output differs", id)
		}
	}
}

func TestRealCancelRacingTheExit(t *testing.T) {
	m := newMachine(t)
	outcomes := map[string]int{}
	for i := range 150 / sizeOfRealTests {
		id := fmt.Sprint(i)
		m.start(id, "echo word")
		if i%3 == 0 {
			m.until(id, func() bool { return len(m.ear.chunks[id]) > 0 })
		} else {
			time.Sleep(time.Duration(i%16) * 700 * time.Microsecond)
		}
		m.d.Cancel(id)
		got := describe(m.outcome(id))
		outcomes[got]++
		if !slices.Contains([]string{"exec 0", "cancelled killed", "cancelled not_started"}, got) {
			t.Errorf("%d: %s %+v", i, got, m.outcome(id))
		}
		if out := m.said(id, wire.ChunkStdout); got == "exec 0" && out != "word\n" || got == "cancelled not_started" && out != "" {
			t.Errorf("%d: %s, and it said %q", i, got, out)
		}
	}
	t.Log(outcomes)
}

func BenchmarkCommand(b *testing.B) {
	m := newMachine(b)
	for i := 0; b.Loop(); i++ {
		id := strconv.Itoa(i)
		m.start(id, "true")
		m.outcome(id)
	}
}
