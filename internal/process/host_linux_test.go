package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// hostVariable makes the test binary an executor of its own: it starts the
// command in the variable, prints what it recorded, and waits to be killed.
const hostVariable = "PROCESS_TEST_HOST"

func beHostIfAsked() {
	if os.Getenv(hostVariable) == "" {
		return
	}
	var s Spec
	if err := json.Unmarshal([]byte(os.Getenv(hostVariable)), &s); err != nil {
		panic(err)
	}
	c, err := New(Config{Before: func(r Recorded) error { return json.NewEncoder(os.Stdout).Encode(r) }})
	if err != nil {
		panic(err)
	}
	if _, err := c.Start(context.Background(), s); err != nil {
		panic(err)
	}
	fmt.Println("started")
	select {}
}

// startHost starts such an executor and returns once its command runs.
func startHost(t *testing.T, s Spec) (*exec.Cmd, Recorded) {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), hostVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	var r Recorded
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &r) != nil || !lines.Scan() || lines.Text() != "started" {
		t.Fatalf("the host said %q", lines.Text())
	}
	return cmd, r
}
