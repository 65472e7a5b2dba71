package executor_test

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// The tests in the lane_ files go the whole way: reference server, socket,
// executor, disk and processes, and back. What one layer promises by itself is
// proved beside it; here it has to survive the others.

// way is a reference server on loopback and an executor of this process behind
// it. Both are ended with the test, and the server must have had nothing to
// object to.
type way struct {
	*host
	dir, workspace string
}

func newWay(t testing.TB, c refserver.Config) *way {
	t.Helper()
	dir, workspace := workspaceOf(t)
	w := &way{newHost(t, c, workspace), dir, workspace}
	config, err := realConfig(w.url, w.device, dir, workspace)
	if err != nil {
		t.Fatal(err)
	}
	x := executor.New(config)
	ended := make(chan error, 1)
	go func() { ended <- x.Run(context.Background()) }()
	t.Cleanup(func() {
		x.StopNow()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.blameless(t)
	})
	activate(t, w.Server, w.device)
	return w
}

// blameless fails the test for everything the server had to object to.
func (h *host) blameless(t testing.TB) {
	t.Helper()
	for _, v := range h.Violations() {
		t.Errorf("the server objects: %v", v)
	}
}

// answer is what an instruction came to, with all it sent.
type answer struct {
	refserver.Settlement
	stdout, stderr, data string
}

// started is a call under way, and what it has sent so far.
type started struct {
	*refserver.Call
	mu   sync.Mutex
	sent map[wire.ChunkKind]*strings.Builder
}

// start gives the device an instruction. It may be called from any goroutine.
func (h *host) start(what refserver.Dispatch) (*started, error) {
	s := &started{sent: map[wire.ChunkKind]*strings.Builder{}}
	what.AckDelivered = true
	what.Deliver = func(kind wire.ChunkKind, data []byte) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sent[kind] == nil {
			s.sent[kind] = &strings.Builder{}
		}
		s.sent[kind].Write(data)
		return nil
	}
	var err error
	s.Call, err = h.Dispatch(context.Background(), h.device, what)
	return s, err
}

// said is what has arrived so far.
func (s *started) said(kind wire.ChunkKind) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent[kind] == nil {
		return ""
	}
	return s.sent[kind].String()
}

func (s *started) answer(ctx context.Context) (answer, error) {
	how, err := s.Wait(ctx)
	return answer{how, s.said(wire.ChunkStdout), s.said(wire.ChunkStderr), s.said(wire.ChunkData)}, err
}

// do gives the device an instruction and waits for the answer.
func (h *host) do(ctx context.Context, what refserver.Dispatch) (answer, error) {
	s, err := h.start(what)
	if err != nil {
		return answer{}, err
	}
	return s.answer(ctx)
}

func (h *host) must(t testing.TB, what refserver.Dispatch) answer {
	t.Helper()
	a, err := h.do(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// at is an instruction of a kind that takes a path and nothing else.
func at(kind wire.Kind, path string) refserver.Dispatch {
	return refserver.Dispatch{Kind: kind, Args: wire.PathArgs{Path: path}}
}

// put is an instruction that writes.
func put(kind wire.Kind, path, content string) refserver.Dispatch {
	return refserver.Dispatch{Kind: kind, Args: wire.WriteArgs{Path: path}, Content: []byte(content)}
}

// wants compares an answer with the outcome, or the wire.ErrorCode of the failure,
// that it should be.
func (a answer) wants(t testing.TB, what string, want any) {
	t.Helper()
	if code, ok := want.(wire.ErrorCode); ok {
		if f, ok := a.Outcome.(wire.Failure); !ok || f.Code != code {
			t.Errorf("%s: %+v, want the failure %s", what, a.Outcome, code)
		}
		return
	}
	if !reflect.DeepEqual(a.Outcome, want) {
		t.Errorf("%s: %+v, want %+v", what, a.Outcome, want)
	}
}

// reactivated does something that ends the connection, and waits for the next.
func (h *host) reactivated(t testing.TB, how func()) {
	t.Helper()
	connections := h.State(h.device).Connections
	how()
	err := h.WaitFor(t.Context(), h.device, func(s refserver.DeviceState) bool { return s.Active && s.Connections > connections })
	if err != nil {
		t.Fatal(err)
	}
}

// rounds is short, or what SEMA_TORTURE_ROUNDS says, as scripts/torture does.
func rounds(t testing.TB, short int) int {
	t.Helper()
	text := os.Getenv("SEMA_TORTURE_ROUNDS")
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SEMA_TORTURE_ROUNDS is %q, not a number of rounds", text)
	}
	return max(n, short)
}

// quick is a folder in memory where there is one: for tests that write thousands
// of times.
func quick(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "executor-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// alive reports whether a process is there and no zombie.
func alive(t testing.TB, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		t.Fatalf("%q is no process", pid)
	}
	if syscall.Kill(n, 0) == syscall.ESRCH {
		return false
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if runtime.GOOS != "linux" {
		return true // an orphan is reaped at once
	}
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// promptly is how long what happens at once may take on a machine that is busy.
const promptly = 20 * time.Second
