package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limitedVariable makes the test binary an executor that starts the command in
// the variable and, once it is told to, ends it and says how that went.
const limitedVariable = "PROCESS_TEST_LIMITED_HOST"

func beLimitedHostIfAsked() {
	if os.Getenv(limitedVariable) == "" {
		return
	}
	var s Spec
	if err := json.Unmarshal([]byte(os.Getenv(limitedVariable)), &s); err != nil {
		panic(err)
	}
	c, err := New(Config{})
	if err != nil {
		panic(err)
	}
	cmd, err := c.Start(context.Background(), s)
	if err != nil {
		panic(err)
	}
	fmt.Println("started")
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Command = ":"
	for err == nil { // now and then the storm leaves room for one more
		var another Command
		if another, err = c.Start(context.Background(), s); err == nil {
			another.Release()
		}
	}
	fmt.Printf("another: %v\n", err)
	ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
	defer cancel()
	err = cmd.End(ctx, 200*time.Millisecond)
	l := cmd.(*command).link
	fmt.Printf("ended: %v, its supervisor lives: %v\n", err, sameAndAlive(l.identity()))
	os.Exit(0)
}

// When a command has used up every process that this user may have, the helpers
// and the executor cannot have another thread either, and a Go program that needs
// one and gets none is ended by its runtime. So they have their threads before.
func TestAForkStormAtTheProcessLimitDoesNotCostTheExecutorItsThreads(t *testing.T) {
	t.Parallel()
	s, token := torture{command: "trap '' TERM; while :; do (sleep %[1]s &); done 2>/dev/null"}.spec(t)
	s.Shell = "/bin/bash"
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	// For root there is no such limit: somebody else has to do it, who may not
	// enter the folder that this program was built in.
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	program := filepath.Join(dir, "executor")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	limit := 120
	host := exec.Command("/bin/bash", "-c", `ulimit -u "$1" && exec "$0"`, program)
	if os.Getuid() == 0 {
		other := uint32(900_000 + os.Getpid()%50_000)
		host.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	} else {
		limit += processesOfThisUser()
	}
	host.Args = append(host.Args, strconv.Itoa(limit))
	host.Env = append(os.Environ(), limitedVariable+"="+string(b))
	host.Dir = "/"
	var complaint strings.Builder
	host.Stderr = &complaint
	order, err := host.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Process.Kill(); host.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "started" {
		t.Fatalf("the host said %q; %.300s", lines.Text(), complaint.String())
	}
	// At the limit: the number does not grow any more.
	last, still := 0, 0
	eventually(t, 20*time.Second, "the storm to reach the limit", func() bool {
		n := len(tokenHolders(s, token))
		if n > 30 && n <= last {
			still++
		}
		last = max(last, n)
		return still >= 20
	})
	order.Close()
	if !lines.Scan() || !strings.Contains(lines.Text(), "no more processes") {
		t.Errorf("of another command at the limit the host said %q; %.300s", lines.Text(), complaint.String())
	}
	if !lines.Scan() || lines.Text() != "ended: <nil>, its supervisor lives: true" {
		t.Errorf("the host said %q; %.300s", lines.Text(), complaint.String())
	}
	awaitNone(t, s, token)
}
