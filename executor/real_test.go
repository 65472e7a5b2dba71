package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-agent/device-executor/enroll"
	"github.com/sema-agent/device-executor/executor"
	"github.com/sema-agent/device-executor/fence"
	"github.com/sema-agent/device-executor/internal/files"
	"github.com/sema-agent/device-executor/internal/status"
	"github.com/sema-agent/device-executor/refserver"
	"github.com/sema-agent/device-executor/wire"
)

// host is a reference server on loopback with one device.
type host struct {
	*refserver.Server
	url, device string
}

func newHost(t testing.TB, c refserver.Config, workspace string) *host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Server: refserver.New(c), url: "http://" + l.Addr().String()}
	_, public := key(7)
	h.device = h.AddDevice(refserver.DeviceRecord{Identity: "u", PublicKey: public, OS: "linux", WorkspaceRoot: workspace})
	var served sync.WaitGroup
	served.Go(func() { _ = h.Serve(l) })
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		served.Wait()
	})
	return h
}

// realConfig serves real commands and files.
func realConfig(url, device, dir, workspace string) (executor.Config, error) {
	server, err := enroll.ParseServer(url, false)
	if err != nil {
		return executor.Config{}, err
	}
	network, err := executor.NewNetwork(server, &http.Transport{}, "test")
	if err != nil {
		return executor.Config{}, err
	}
	private, _ := key(7)
	return executor.Config{
		DeviceID: device, Key: private, WorkspaceRoot: workspace, Server: server,
		Platform: wire.Platform{OS: "linux", Arch: "amd64", ExecutorVersion: "test"},
		Network:  network, Dir: dir, Env: os.Environ(), Files: &files.Config{}, Drain: 10 * time.Second,
	}, nil
}

// spec is what a test tells a child process to serve.
type spec struct {
	URL, Device, Dir, Workspace string
	Named                       bool // temporaries have names, as where the file system has no other
}

const specVariable = "EXECUTOR_TEST_SERVE"

// serveForParent is the child's whole life.
func serveForParent(text string) int {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	c, err := realConfig(s.URL, s.Device, s.Dir, s.Workspace)
	if err == nil && s.Named {
		c.Files.Calls = named{}
	}
	if err == nil {
		err = executor.Run(context.Background(), c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child starts an executor in a process of its own.
func child(t *testing.T, h *host, dir, workspace string) *exec.Cmd {
	t.Helper()
	return serveIn(t, spec{URL: h.url, Device: h.device, Dir: dir, Workspace: workspace})
}

func serveIn(t *testing.T, s spec) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), specVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func workspaceOf(t testing.TB) (dir, workspace string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, workspace = filepath.Join(base, "device"), filepath.Join(base, "work")
	for _, d := range []string{dir, workspace} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, workspace
}

func ask(t *testing.T, h *host, what refserver.Dispatch) (refserver.Settlement, string) {
	t.Helper()
	var out bytes.Buffer
	what.Deliver = func(_ wire.ChunkKind, data []byte) error { out.Write(data); return nil }
	call, err := h.Dispatch(t.Context(), h.device, what)
	if err != nil {
		t.Fatal(err)
	}
	return settle(t, call), out.String()
}

func shell(text string) refserver.Dispatch {
	return refserver.Dispatch{Kind: wire.KindExec, Args: wire.ExecArgs{Command: text}}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestARealExecutorRunsCommandsServesFilesAndSaysWhatItDoes(t *testing.T) {
	dir, workspace := workspaceOf(t)
	h := newHost(t, refserver.Config{Heartbeat: time.Second}, workspace)
	c, err := realConfig(h.url, h.device, dir, workspace)
	if err != nil {
		t.Fatal(err)
	}
	x := executor.New(c)
	ended := make(chan error, 1)
	go func() { ended <- x.Run(t.Context()) }()
	activate(t, h.Server, h.device)

	how, out := ask(t, h, shell("pwd; echo err >&2; exit 7"))
	if how.Outcome != wire.Outcome(wire.ExecOutcome{ExitCode: 7}) || !strings.Contains(out, workspace) {
		t.Errorf("settled %+v with %q", how, out)
	}
	path := filepath.Join(workspace, "new", "file")
	how, _ = ask(t, h, refserver.Dispatch{Kind: wire.KindWriteFile, Args: wire.WriteArgs{Path: path}, Content: []byte("content")})
	if w, ok := how.Outcome.(wire.WriteOutcome); !ok || w.CanonicalPath != path {
		t.Errorf("settled %+v", how)
	}
	how, out = ask(t, h, refserver.Dispatch{Kind: wire.KindReadTextFile, Args: wire.PathArgs{Path: path}})
	if how.Outcome != wire.Outcome(wire.ReadOutcome{}) || out != "content" {
		t.Errorf("settled %+v with %q", how, out)
	}

	long, err := h.Dispatch(t.Context(), h.device, shell("echo working; sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fromLaterVersions := range []string{`{"t":"ping","more":1}`, `{"t":"pong","more":1}`} {
		h.Inject(h.device, []byte(fromLaterVersions))
	}
	statusPath := filepath.Join(dir, executor.StatusFile)
	eventually(t, 10*time.Second, "the status file names the running command", func() bool {
		s, err := status.Load(statusPath)
		return err == nil && s.State.Phase == "active" && s.Generation == "1" && len(s.Work) == 1 &&
			s.Work[0].ID == long.ID() && s.Work[0].BytesOut == 8 && !s.Work[0].Started.IsZero() &&
			s.Counters.Instructions == 4 && s.Counters.Connections == 1 &&
			s.Counters.FramesIgnored == 1 && s.Counters.MembersIgnored == 1
	})
	ledger, err := filepath.Glob(filepath.Join(dir, executor.LedgerDir, "process-*.json"))
	if err != nil || len(ledger) == 0 {
		t.Errorf("ledger of a running command: %v, %v", ledger, err)
	}

	var held *fence.HeldError
	if err := executor.Run(t.Context(), c); !errors.As(err, &held) || held.PID != os.Getpid() {
		t.Errorf("a second executor: %v", err)
	}

	x.StopNow()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if held, _, err := fence.Probe(filepath.Join(dir, executor.LockFile)); held || err != nil {
		t.Errorf("the lock after the end: held %t, %v", held, err)
	}
	if s, err := status.Load(statusPath); err != nil || s.State.Phase != "stopped" || len(s.Work) != 0 {
		t.Errorf("the last status: %+v, %v", s, err)
	}
	for _, v := range h.Violations() {
		t.Errorf("the server objects: %v", v)
	}
}

func TestWhatACrashLeftIsEndedBeforeTheNextExecutorServes(t *testing.T) {
	dir, workspace := workspaceOf(t)
	h := newHost(t, refserver.Config{Heartbeat: time.Second, Takeover: refserver.TakeoverAny}, workspace)
	first := child(t, h, dir, workspace)
	activate(t, h.Server, h.device)
	mark := filepath.Join(workspace, "pid")
	call, err := h.Dispatch(t.Context(), h.device, shell("echo $$ > "+mark+"; exec sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the command runs", func() bool {
		b, err := os.ReadFile(mark)
		return err == nil && strings.HasSuffix(string(b), "\n")
	})
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	child(t, h, dir, workspace)
	if how := settle(t, call); how.Outcome.(wire.Failure).Code != wire.CodeOutcomeUnknown {
		t.Errorf("settled %+v", how)
	}
	activate(t, h.Server, h.device)
	b, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/stat")
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the command of the crashed executor still runs: %s", stat)
	}
	left, err := os.ReadDir(filepath.Join(dir, executor.LedgerDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		body, _ := os.ReadFile(filepath.Join(dir, executor.LedgerDir, f.Name()))
		if bytes.Contains(body, []byte(call.ID())) {
			t.Errorf("the ledger still names the ended command: %s", body)
		}
	}
}

func TestAnExecutorThatWasFrozenIsActiveAgainWithinThreeSeconds(t *testing.T) {
	t.Parallel() // most of it is waiting
	dir, workspace := workspaceOf(t)
	h := newHost(t, refserver.Config{Heartbeat: time.Second}, workspace)
	x := child(t, h, dir, workspace)
	activate(t, h.Server, h.device)
	if how, _ := ask(t, h, shell("true")); how.Outcome != wire.Outcome(wire.ExecOutcome{}) {
		t.Fatalf("settled %+v", how)
	}
	if err := x.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := time.NewTimer(10 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := h.WaitFor(ctx, h.device, func(s refserver.DeviceState) bool { return !s.Connected }); err != nil {
		t.Fatal(err) // the server hangs up on the silence
	}
	<-frozen.C
	if err := x.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	thawed := time.Now()
	activate(t, h.Server, h.device)
	if took := time.Since(thawed); took > 3*time.Second {
		t.Errorf("active again after %v", took)
	}
}
